"""A run whose pods are in several places, although it asks Kueue for one, says so (kueue#6957)."""

from dataclasses import replace
from typing import Any

import pytest

from cli.status.judge import RunStatus
from cli.status.promised_place import in_promised_place
from cli.status.snapshot import take_snapshot
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.names import PREFERRED_TOPOLOGY, REQUIRED_TOPOLOGY
from tests.cli.status.lost_machine import Server

RACK = "example.com/rack"
TRAINS = RunStatus("dev", "disttrain", "MPIJob train-mpijob", 3, "training")
LABELS = {"n1": "a", "n2": "a", "n3": "b"}
NODES = [
    {"metadata": {"name": name, "labels": {RACK: rack}}, "spec": {}}
    for name, rack in LABELS.items()
]
SCATTERED = (
    "pod launcher is in b, and 2 pods are in a, although the run asks for one place of "
    f"{RACK}: Kueue has replaced a lost machine without regard to the other pods (kueue#6957). "
    "./disttrain stop and then ./disttrain resume let Kueue choose anew"
)


def pod(name: str, node: str, wish: str = REQUIRED_TOPOLOGY, **metadata: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "annotations": {wish: RACK}, **metadata},
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": "Running" if node else "Pending"},
    }


TWO = [pod("worker-0", "n1"), pod("worker-1", "n2")]


def test_pod_outside_the_promised_rack_is_named() -> None:
    """Nothing else shows that one pod is in another rack, where the training is slower."""
    pods = [pod("launcher", "n3"), *TWO]
    assert in_promised_place(TRAINS, pods, NODES).detail == SCATTERED
    saving = replace(TRAINS, detail="checkpoint step 4 is being written")
    assert in_promised_place(saving, pods, NODES).detail == f"{saving.detail}; {SCATTERED}"
    bare = [*NODES[:2], {"metadata": {"name": "n3"}}]
    assert "pod launcher is on a node without that label, and" in (
        in_promised_place(TRAINS, pods, bare).detail
    )


@pytest.mark.parametrize(
    "pods",
    [
        TWO,
        [pod("launcher", "n3", PREFERRED_TOPOLOGY), *TWO],
        [pod("launcher", "n3", deletionTimestamp="now"), *TWO],
        [pod("launcher", ""), *TWO],
        [pod("launcher", "unseen"), *TWO],
    ],
    ids=["one-rack", "preferred", "ends", "not-placed", "node-not-read"],
)
def test_run_within_its_promised_rack_says_nothing(pods: list[dict[str, Any]]) -> None:
    """Neither does a run with a mere preference, nor what may not be read."""
    assert in_promised_place(TRAINS, pods, NODES) == TRAINS
    assert in_promised_place(TRAINS, pods, []) == TRAINS


def test_stopped_run_says_nothing_of_its_racks() -> None:
    """Its pods may still be there, but they end."""
    stopped = replace(TRAINS, state="stopped")
    assert in_promised_place(stopped, [pod("launcher", "n3"), *TWO], NODES) == stopped


def test_status_shows_the_pod_outside_the_rack() -> None:
    """`./disttrain status` compares the labels of the nodes that it has read."""
    server = Server(1)
    server.pods[:] = [pod("launcher", "n3"), *TWO]
    for each in server.pods:
        each["metadata"]["creationTimestamp"] = "2026-11-22T06:58:00Z"
        each["spec"]["containers"] = [{"name": "trainer"}]
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    server.answers["/api/v1/nodes"] = {"items": [{**node, "status": ready} for node in NODES]}
    api = Api(Access(kubeconfig="{}"), patience_seconds=0)
    api.use(server)
    assert take_snapshot(api, "disttrain").runs[0].detail.endswith(SCATTERED)

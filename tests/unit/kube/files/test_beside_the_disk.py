"""The pod of a command on a disk that only one node can mount at a time."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from infra.kube.errors import ApiError
from infra.kube.files.task_pod import TaskPod, running
from tests.unit.kube.server import ApiServer, Json, api_of

POD = TaskPod("fetch", "11111111", "disttrain", "trainer:1", ("true",), "data", 60)


def pod(node: str, claim: str = "data", phase: str = "Running") -> Json:
    """Return a pod that mounts a claim on a node; it has no node yet if the name is empty."""
    volumes = [{"name": "shm"}, {"name": "d", "persistentVolumeClaim": {"claimName": claim}}]
    where = {"nodeName": node} if node else {}
    return {
        "metadata": {"name": "p"},
        "spec": {**where, "volumes": volumes},
        "status": {"phase": phase},
    }


class Cluster(ApiServer):
    """A cluster with a claim and pods. The pod that is made runs at once.

    Args:
        modes: the access modes of the claim.
        pods: the pods of the namespace.
        hidden: the end of a path that these credentials may not read.
    """

    def __init__(self, modes: list[str], pods: list[Json], hidden: str = "-") -> None:
        self._modes, self._pods, self._hidden = modes, pods, hidden
        self.made: Json = {}

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json:
        if method == "POST":
            self.made = body
        if method != "GET":
            return {}
        if path.endswith(self._hidden):
            raise ApiError(403, "forbidden")
        if path.endswith("/persistentvolumeclaims/data"):
            return {"spec": {"accessModes": self._modes}}
        if path.endswith("/pods"):
            return {"items": self._pods}
        return {"metadata": {"name": "p"}, "status": {"phase": "Running"}}


def affinity_on(cluster: Cluster, made: TaskPod = POD) -> Any:
    """Return the affinity of the pod that is made on this cluster; None if it has none."""
    with running(api_of(cluster), made):
        return cluster.made["spec"].get("affinity")


def on(*nodes: str) -> Json:
    """Return the affinity of a pod that can only be placed on these nodes.

    Kubernetes refuses several names in one term.
    """
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]} for node in nodes]
    terms = {"nodeSelectorTerms": [{"matchFields": [field]} for field in fields]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@pytest.mark.parametrize(
    ("modes", "pods", "affinity"),
    [
        (["ReadWriteOnce"], [pod(""), pod("other", "logs"), pod("n2")], on("n2")),
        (["ReadWriteOnce"], [pod("n3"), pod("n2"), pod("n3")], on("n2", "n3")),
        (["ReadWriteOnce"], [pod("n2", phase="Succeeded"), pod("")], None),
        (["ReadWriteOnce", "ReadWriteMany"], [pod("n2")], None),
        (["ReadWriteMany"], [pod("n2")], None),
    ],
    ids=["a-training", "network-disk", "nobody", "either", "shared"],
)
def test_pod_of_a_command_goes_where_the_disk_is(
    modes: list[str], pods: list[Json], affinity: Json | None
) -> None:
    """The disk of a cloud is attached to the node of the training. Kubernetes' scheduler does not
    look at that, and a pod on another node waits for the disk until the training has ended.
    """
    assert affinity_on(Cluster(modes, pods)) == affinity


@pytest.mark.parametrize("hidden", ["/pods", "/persistentvolumeclaims/data"])
def test_pod_goes_anywhere_if_the_disk_cannot_be_seen(hidden: str) -> None:
    assert affinity_on(Cluster(["ReadWriteOnce"], [pod("n2")], hidden)) is None


def test_other_affinity_of_the_pod_stays() -> None:
    placement = {"affinity": {"podAffinity": {"some": "thing"}}}
    found = affinity_on(Cluster(["ReadWriteOnce"], [pod("n2")]), replace(POD, placement=placement))
    assert found == {**on("n2"), "podAffinity": {"some": "thing"}}

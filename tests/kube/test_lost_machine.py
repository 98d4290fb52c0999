"""Pods that cannot end, because their machine does not answer: what `destroy` and `up` say."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from infra.kube.api_server.api import Api
from tests.kube.lab import Lab, Run, wait_for

STATUS_PATCH = "application/strategic-merge-patch+json"


@pytest.fixture
def lost(lab: Lab) -> Iterator[str]:
    """The name of a machine without a kubelet, whose Node says that Kubernetes has missed it."""
    name = f"lost-{uuid.uuid4().hex[:8]}"
    lab.api.create(
        "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    )
    try:
        ready = {
            "type": "Ready",
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "lastHeartbeatTime": (now := f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"),
            "lastTransitionTime": now,
        }
        lab.api.request(
            "PATCH",
            f"/api/v1/nodes/{name}/status",
            {"status": {"conditions": [ready]}},
            content_type=STATUS_PATCH,
        )
        yield name
    finally:
        lab.api.delete(f"/api/v1/nodes/{name}", {})


def stranded(lab: Lab, run: Run, machine: str) -> str:
    """A run whose one pod is on that machine; the run is deleted, and the pod is left."""
    run.pod = {"nodeName": machine, "tolerations": [{"operator": "Exists"}]}
    run.make()
    pod = str(wait_for("the pod", run.pods)[0]["metadata"]["name"])
    lab.api.delete(run.path, {"propagationPolicy": "Background"})
    wait_for("its deletion", lambda: run.pods()[0]["metadata"].get("deletionTimestamp"))
    return pod


def remove_by_force(api: Api, run: Run, pod: str) -> None:
    """As the message says, and as `lostNodes` does it."""
    api.delete(f"/api/v1/namespaces/{run.namespace}/pods/{pod}", {"gracePeriodSeconds": 0})


def test_destroy_names_the_machine_that_keeps_a_pod(lab: Lab, lost: str) -> None:
    """`pulumi destroy` waited for ten minutes for the claim, and said nothing of a machine."""
    run = Run(lab, lab.namespace(), "dev")
    pod = stranded(lab, run, lost)
    job = run.job() | {"everyone": True}
    status, output = lab.run("leftovers", "delete", job)
    assert status == 1
    assert f"{pod} cannot end, because machine {lost} has not answered since" in output
    command = f"kubectl delete pod {pod} --namespace {run.namespace} --grace-period=0 --force"
    assert command in output
    lab.kubectl(*command.split()[1:])
    assert lab.run("leftovers", "delete", job)[0] == 0


def test_destroy_of_a_run_alone_names_it_too(lab: Lab, lost: str) -> None:
    """It ended without a word; the platform's `destroy` then waited ten minutes for the claim."""
    run = Run(lab, lab.namespace(), "dev")
    pod = stranded(lab, run, lost)
    for job in (run.job(), run.job() | {"everyone": True, "owner": "platform"}):
        status, output = lab.run("leftovers", "delete", job)
        assert status == 1
        assert f"{pod} cannot end, because machine {lost} has not answered since" in output
    remove_by_force(lab.api, run, pod)
    assert lab.run("leftovers", "delete", run.job())[0] == 0


def test_destroy_waits_where_lost_pods_are_given_up(lab: Lab, lost: str) -> None:
    """With `lostNodes: replace` the pod of a lost machine goes in a minute: that is no error."""
    run = Run(lab, lab.namespace(), "dev")
    pod = stranded(lab, run, lost)
    job = run.job() | {"everyone": True, "lost_nodes_are_replaced": True}
    task = lab.start("leftovers", "delete", job)
    task.wait_for_words(f"waiting for the pods of the training to save and end; {pod}")
    remove_by_force(lab.api, run, pod)
    status, output = task.end()
    assert status == 0, output


def test_a_hand_over_names_the_machine_too(lab: Lab, lost: str) -> None:
    """`pulumi up` of a changed run waits for the pods of before, and says why one does not end."""
    run = Run(lab, lab.namespace(), "dev")
    run.pod = {"nodeName": lost, "tolerations": [{"operator": "Exists"}]}
    assert run.hand_over()[0] == 0
    run.make()
    pod = str(wait_for("the pod", run.pods)[0]["metadata"]["name"])
    task = lab.start("hand-over", "create", run.job("r2"))
    task.wait_for_words(f"machine {lost} has not answered since")
    remove_by_force(lab.api, run, pod)
    status, output = task.end()
    assert status == 0, output

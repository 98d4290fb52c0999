"""Pods that cannot end because their machine does not answer: what `destroy` and `up` say."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from infra.kube.api_server.api import Api
from tests.kube.lab import Lab, Run, wait_for

STATUS_PATCH = "application/strategic-merge-patch+json"


@pytest.fixture
def lost(lab: Lab) -> Iterator[str]:
    """Yield the name of a machine without a kubelet, whose Node says that it does not answer."""
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
    """Delete a run whose one pod is on that machine; return the name of the pod that is left."""
    run.pod = {"nodeName": machine, "tolerations": [{"operator": "Exists"}]}
    run.make()
    pod = str(wait_for("the pod", run.pods)[0]["metadata"]["name"])
    lab.api.delete(run.path, {"propagationPolicy": "Background"})
    wait_for("its deletion", lambda: run.pods()[0]["metadata"].get("deletionTimestamp"))
    return pod


def remove_by_force(api: Api, run: Run, pod: str) -> None:
    """Delete the pod without waiting for its machine, as the message advises and as `lostNodes`
    does.
    """
    api.delete(f"/api/v1/namespaces/{run.namespace}/pods/{pod}", {"gracePeriodSeconds": 0})


def test_destroy_names_the_machine_that_keeps_a_pod(lab: Lab, lost: str) -> None:
    """`destroy` of a platform names the machine that keeps a pod, and the command that removes the
    pod.

    Otherwise `pulumi destroy` would wait ten minutes for the claim, and not say why.
    """
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
    """`destroy` of a run, too, names the machine that keeps a pod of the run.

    Otherwise it would end as if all were well, and the platform's `destroy` would wait for the
    claim.
    """
    run = Run(lab, lab.namespace(), "dev")
    pod = stranded(lab, run, lost)
    for job in (run.job(), run.job() | {"everyone": True, "owner": "platform"}):
        status, output = lab.run("leftovers", "delete", job)
        assert status == 1
        assert f"{pod} cannot end, because machine {lost} has not answered since" in output
    remove_by_force(lab.api, run, pod)
    assert lab.run("leftovers", "delete", run.job())[0] == 0


def test_destroy_waits_where_lost_pods_are_given_up(lab: Lab, lost: str) -> None:
    """With `lostNodes: replace`, `destroy` waits for the pod of a lost machine and does not fail.

    The platform removes such a pod within a minute.
    """
    run = Run(lab, lab.namespace(), "dev")
    pod = stranded(lab, run, lost)
    job = run.job() | {"everyone": True, "lost_nodes_are_replaced": True}
    task = lab.start("leftovers", "delete", job)
    task.wait_for_words(f"waiting for the pods of the training to save and end; {pod}")
    remove_by_force(lab.api, run, pod)
    status, output = task.end()
    assert status == 0, output


def test_a_hand_over_names_the_machine_too(lab: Lab, lost: str) -> None:
    """`up` of a changed run waits for the pods of before, and names the machine that keeps one of
    them.
    """
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

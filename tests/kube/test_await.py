"""The wait of `up` for a training, and the tasks that claim namespaces, free volumes and remove
pods.

All run against a real cluster.
"""

from pathlib import Path

import pytest

from infra.kube import names
from tests.gate import Gate
from tests.kube.gate import through
from tests.kube.lab import LIMIT_SECONDS, PROBE_IMAGE, Lab, Run, wait_for


@pytest.mark.slow
def test_wait_fails_with_the_pods_words_when_they_never_come_up(lab: Lab) -> None:
    run = Run(lab, lab.namespace(), "dev")
    run.make(resources={"requests": {"cpu": "10000"}})
    # The three seconds limit the tested wait; the scheduler of a busy machine may need longer.
    wait_for("the scheduler's words", lambda: is_unschedulable(run))
    status, output = lab.run("await", "create", run.await_job() | {"timeout_seconds": 3})
    assert status == 1
    assert "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu" in output
    assert "waited 3 s (trainingTimeoutSeconds) for 1 ready pods of Job train-dev" in output


NEVER_READY = {"exec": {"command": ["/there-is-no-such-program"]}}


def is_unschedulable(run: Run) -> bool:
    conditions = [each for pod in run.pods() for each in pod["status"].get("conditions", [])]
    return any(each.get("reason") == "Unschedulable" for each in conditions)


@pytest.mark.slow
def test_wait_reports_a_failed_job_with_its_last_lines(lab: Lab) -> None:
    run = Run(lab, lab.namespace(), "dev")
    # Without a probe, the pod would be ready for the moment that it runs.
    run.make(args=["nonsense"], readinessProbe=NEVER_READY)
    status, output = lab.run("await", "create", run.await_job())
    assert status == 1
    assert "training failed: Job train-dev failed: Failed: BackoffLimitExceeded" in output
    assert "usage: probe serve ADDRESS" in output


def test_wait_ends_when_the_job_has_finished(lab: Lab) -> None:
    run = Run(lab, lab.namespace(), "dev")
    run.make(args=["lookup", "localhost"], readinessProbe=NEVER_READY)
    status, output = lab.run("await", "create", run.await_job())
    assert status == 0, output
    assert "Job train-dev has finished" in output


def test_wait_ends_when_enough_pods_stay_ready(lab: Lab) -> None:
    """With `run.train.nodes_min`, `up` succeeds although a machine is away."""
    run = Run(lab, lab.namespace(), "dev")
    run.make()
    status, output = lab.run("await", "create", run.await_job(pods=2, pods_min=1))
    assert status == 0, output
    assert "1 of 2 pods are ready and train; run.train.nodes_min is 1" in output


def test_wait_ends_when_somebody_deletes_the_workload(lab: Lab) -> None:
    run = Run(lab, lab.namespace(), "dev")
    run.make(resources={"requests": {"cpu": "10000"}})
    task = lab.start("await", "create", run.await_job())
    task.wait_for_words("Unschedulable")
    lab.api.delete(run.path, {"propagationPolicy": "Background"})
    status, output = task.end()
    assert status == 1
    assert "Job train-dev is gone: somebody has deleted it" in output


def test_wait_of_a_run_that_is_replaced_says_by_whom(lab: Lab) -> None:
    namespace = lab.namespace()
    run, other = Run(lab, namespace, "dev"), Run(lab, namespace, "other")
    assert run.hand_over()[0] == 0
    run.make(resources={"requests": {"cpu": "10000"}})
    task = lab.start("await", "create", run.await_job())
    task.wait_for_words("Unschedulable")
    assert other.hand_over()[0] == 0
    status, output = task.end()
    assert status == 1
    assert "Job train-dev was suspended by stack other, whose run took its place" in output


def test_wait_goes_on_after_the_api_server_was_away(lab: Lab, gate: Gate, tmp_path: Path) -> None:
    run = Run(lab, lab.namespace(), "dev")
    run.make(resources={"requests": {"cpu": "10000"}})
    kubeconfig = {"kubeconfig_path": str(through(lab, gate, tmp_path))}
    task = lab.start("await", "create", run.await_job() | kubeconfig)
    task.wait_for_words("Unschedulable")
    gate.close()
    task.wait_for_words("the API server does not answer")
    gate.open()
    lab.api.delete(run.path, {"propagationPolicy": "Background"})
    status, output = task.end()
    assert status == 1
    assert "Job train-dev is gone" in output


def test_namespace_that_is_not_ours_is_refused(lab: Lab) -> None:
    """`up` refuses a namespace that exists and that this stack has not made.

    Otherwise `up` would take it over, and `destroy` would delete it with all that others have in
    it.
    """
    run = Run(lab, "disttrain", "dev")
    ours, nobodys = lab.namespace(run.owner), lab.namespace()
    job = run.job() | {"names": [ours, "not-there"]}
    assert lab.run("claim-namespace", "create", job)[0] == 0
    status, output = lab.run("claim-namespace", "create", job | {"names": [ours, nobodys]})
    assert status == 1
    assert f"namespace: '{nobodys}' exists on the cluster and was not made by this stack" in (
        output
    )
    assert "pulumi config set namespace NAME" in output


def test_released_volume_of_ours_is_freed_and_no_other(lab: Lab) -> None:
    run = Run(lab, lab.namespace(), "dev")
    collection = "/api/v1/persistentvolumes"
    limit = f"--timeout={LIMIT_SECONDS}s"  # kubectl's own is 30 s
    for name, owner in (("ours-1", run.owner), ("theirs-1", "somebody")):
        claim = {"namespace": run.namespace, "name": name, "uid": "1"}
        body = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": {names.OWNER_LABEL: owner}},
            "spec": {
                "capacity": {"storage": "1Mi"},
                "accessModes": ["ReadWriteMany"],
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": "/tmp"},
                "claimRef": claim,
            },
        }
        lab.api.create(collection, body)
        lab.kubectl("wait", f"pv/{name}", "--for=jsonpath={.status.phase}=Released", limit)
        job = run.job() | {"volume": name, "claim": "disttrain-pvc"}
        assert lab.run("free-volume", "create", job)[0] == 0
        found = lab.api.get(f"{collection}/{name}")
        assert found
        assert ("uid" in found["spec"]["claimRef"]) == (owner == "somebody")
        lab.api.delete(f"{collection}/{name}", {})


def test_pods_that_commands_left_are_removed_and_no_others(lab: Lab) -> None:
    namespace = lab.namespace()
    run, other = Run(lab, namespace, "dev"), Run(lab, namespace, "other")
    other.make()
    wait_for("its pod", other.pods)
    collection = f"/api/v1/namespaces/{namespace}/pods"
    for name, owner in (("sample-ours", run.owner), ("sample-theirs", "somebody")):
        labels = {names.TASK_LABEL: "sample", names.OWNER_LABEL: owner}
        container = {"name": "x", "image": PROBE_IMAGE, "args": ["serve", ":1"]}
        spec = {"containers": [container | {"imagePullPolicy": "Never"}]}
        metadata = {"name": name, "labels": labels}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        lab.api.create(collection, body)
    assert lab.run("leftovers", "delete", run.job())[0] == 0
    left = {pod["metadata"]["name"] for pod in lab.api.list(collection, names.TASK_LABEL)}
    assert left == {"sample-theirs"}
    platform = run.job() | {"everyone": True, "owner": "platform"}
    assert lab.run("leftovers", "delete", platform)[0] == 0
    assert lab.api.list(collection, names.TASK_LABEL) == []
    assert other.get()
    assert other.pods()

"""A platform's own queue of Kueue, before it is made and when it is removed, on a real API server.

Kueue's controller does not run here; the tests write what it would write.
"""

import pytest

from infra.kube.errors import TaskError
from infra.kube.names import OWNER_LABEL
from infra.kube.objects import Json
from infra.kube.queues import claim_queues, open_queue, queue_removal
from infra.kube.runs import destroy_guard
from tests.kube.kueue import make, put_into_queue, say
from tests.kube.lab import Lab, Run
from tests.kube.queue_jobs import job_of


def queue_of(lab: Lab, namespace: str, owner: str) -> tuple[Json, str]:
    """Make a ClusterQueue with Kueue's finalizer, and a LocalQueue.

    Return the fields of the tasks about this queue, and the path of the ClusterQueue.
    """
    fields = {"queue": "gpus", "cluster_queue": f"{namespace}-gpus"}
    about = {"labels": {OWNER_LABEL: owner}}
    whole = {**about, "name": fields["cluster_queue"], "finalizers": ["kueue.x-k8s.io/in-use"]}
    path = make(lab, "clusterqueues", {"kind": "ClusterQueue", "metadata": whole, "spec": {}})
    local = {"kind": "LocalQueue", "metadata": {**about, "name": "gpus"}}
    make(
        lab, "localqueues", {**local, "spec": {"clusterQueue": fields["cluster_queue"]}}, namespace
    )
    return fields, path


def test_queue_of_somebody_else_is_left_as_it_is(kueue: Lab) -> None:
    lab, namespace = kueue, kueue.namespace()
    fields, path = queue_of(lab, namespace, "theirs")
    claim_queues.create(job_of(lab, namespace, "theirs", **fields), lab.api)
    said = r"localqueues/gpus exists on the cluster and belongs to another stack .*\(owner theirs\)"
    with pytest.raises(TaskError, match=said):
        claim_queues.create(job_of(lab, namespace, "ours", **fields), lab.api)
    name = f"urgent-{namespace}"
    theirs = {"kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": 1}
    make(lab, "workloadpriorityclasses", theirs)
    more = job_of(lab, namespace, "theirs", **fields, priorities=[name])
    with pytest.raises(TaskError, match=f"config rm --path queues.priorities.{name}"):
        claim_queues.create(more, lab.api)
    lab.api.delete(f"/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses/{name}", {})
    assert lab.api.get(path)


def test_queue_with_others_work_keeps_its_platform_from_going(
    kueue: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A platform is not removed while its queue holds work of others, and nothing is deleted then.

    A run of the same stack does not keep `destroy`, because it is deleted too; but its queue is
    only deleted when the run has left it.
    """
    monkeypatch.setattr(open_queue, "EMPTY_SECONDS", 0)
    lab = kueue
    run = Run(lab, lab.namespace(), "dev")
    assert run.hand_over(queue="gpus")[0] == 0
    fields, _ = queue_of(lab, run.namespace, run.owner)
    workload = put_into_queue(run, "full")
    lab.api.patch(workload, {"metadata": {"ownerReferences": [owner_of(run)]}})
    destroy_guard.delete(job_of(lab, run.namespace, run.owner, queue=fields), lab.api)
    with pytest.raises(TaskError, match=f"Job {run.name} is in queue gpus of namespace"):
        open_queue.delete(job_of(lab, run.namespace, run.owner, **fields), lab.api)
    other = Run(lab, run.namespace, "other")
    put_into_queue(other, "full")
    with pytest.raises(TaskError, match="nothing was deleted: Workload job-train-other is in"):
        destroy_guard.delete(job_of(lab, run.namespace, run.owner, queue=fields), lab.api)


def owner_of(run: Run) -> Json:
    """Return the run's Job as the owner of another object."""
    made = run.get()
    assert made
    uid = made["metadata"]["uid"]
    return {"apiVersion": "batch/v1", "kind": "Job", "name": run.name, "uid": uid}


def test_queue_goes_where_kueue_went_before_it(kueue: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue can be removed after Kueue itself is gone, whose finalizer nobody else would take
    off.

    A queue that holds work is still refused.
    """
    monkeypatch.setattr(queue_removal, "STUCK_SECONDS", 0)
    lab = kueue
    run = Run(lab, lab.namespace(), "dev")
    fields, path = queue_of(lab, run.namespace, run.owner)
    job = job_of(lab, run.namespace, run.owner, **fields)
    workload = put_into_queue(run, "full")
    place = {"clusterQueue": fields["cluster_queue"], "podSetAssignments": [{"name": "main"}]}
    lab.api.patch(f"{workload}/status", {"status": {"admission": place}})
    with pytest.raises(TaskError, match=f"{fields['cluster_queue']} cannot go: it is held by Work"):
        queue_removal.remove(job, lab.api)
    lab.api.delete(workload, {})
    open_queue.delete(job, lab.api)
    assert lab.api.get(path) is None


def test_work_whose_job_was_deleted_keeps_no_queue(
    kueue: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Workload that is being deleted does not keep its queue.

    Kueue's finalizer may stay on such a Workload forever if Kueue has ended before.
    """
    monkeypatch.setattr(queue_removal, "STUCK_SECONDS", 0)
    monkeypatch.setattr(open_queue, "EMPTY_SECONDS", 0)
    lab = kueue
    run = Run(lab, lab.namespace(), "dev")
    fields, path = queue_of(lab, run.namespace, run.owner)
    workload = put_into_queue(run, "full")
    lab.api.patch(workload, {"metadata": {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}})
    lab.api.delete(workload, {})
    open_queue.delete(job_of(lab, run.namespace, run.owner, **fields), lab.api)
    assert lab.api.get(path) is None
    lab.api.patch(workload, {"metadata": {"finalizers": None}})


def test_only_objects_of_the_own_stack_are_taken_away(kueue: Lab) -> None:
    lab, namespace = kueue, kueue.namespace()
    fields, path = queue_of(lab, namespace, "theirs")
    open_queue.delete(job_of(lab, namespace, "ours", **fields), lab.api)
    found = lab.api.get(path)
    assert found
    assert "deletionTimestamp" not in found["metadata"]


def test_up_waits_until_kueue_takes_runs_into_the_queue(
    kueue: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`up` waits until Kueue says that the queue is active, and otherwise fails with Kueue's
    reason.

    `up` does not wait for a queue that somebody has stopped on purpose.
    """
    monkeypatch.setattr(open_queue, "OPEN_SECONDS", 0)
    lab, namespace = kueue, kueue.namespace()
    fields, whole = queue_of(lab, namespace, "ours")
    local = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/localqueues/gpus"
    job = job_of(lab, namespace, "ours", **fields)
    with pytest.raises(TaskError, match="Kueue has not taken it up: does its controller run"):
        open_queue.create(job, lab.api)
    say(lab, local, "Active", "True", "")
    say(lab, whole, "Active", "False", "Can't admit new workloads: references missing flavor")
    with pytest.raises(TaskError, match="references missing flavor"):
        open_queue.create(job, lab.api)
    say(lab, whole, "Active", "False", "Can't admit new workloads: is stopped")
    open_queue.create(job, lab.api)
    say(lab, whole, "Active", "True", "Can admit new workloads")
    open_queue.create(job, lab.api)

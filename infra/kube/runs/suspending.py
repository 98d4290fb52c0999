"""Ends or suspends workloads. Their pods save before they end."""

from contextlib import suppress

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import list_if_allowed
from infra.kube.errors import ApiError, TaskError
from infra.kube.job import Job
from infra.kube.objects import Json, has_ended, label
from infra.kube.paths import PODS
from infra.kube.pods.silent_machines import pods_and_machines, silent_machines
from infra.kube.queues.kueue import refuse_to_suspend, steer
from infra.kube.record import (
    COLLECTION,
    SELECTOR,
    Record,
    parse_record,
    read_record,
    record_name,
    record_path,
)
from infra.kube.runs.workload_now import workload_now
from infra.kube.say import say
from infra.kube.waiting import wait_for

LOCK_LIMIT_SECONDS = 900
"""How long another hand-over may hold the lock, besides the time that its runs take to save."""


def suspend_run(api: Api, namespace: str, record: Record, by_stack: str) -> None:
    """Note in a run's record which stack suspends it, and suspend it.

    Raises:
        TaskError: the run cannot be suspended. Nothing is noted then.
        ApiError: the API server refuses it. Nothing is noted then.
    """
    item = workload_to_suspend(api, namespace, record)
    _note_suspension(api, namespace, record, by_stack)
    if item is None:
        return
    try:
        steer(api, namespace, item, record.suspend, active=False)
    except (ApiError, TaskError):
        _note_suspension(api, namespace, record, record.suspended_by)
        raise


def workload_to_suspend(api: Api, namespace: str, record: Record) -> Json | None:
    """The workload of a run that has to be suspended; None: it is not there.

    Raises:
        TaskError, ApiError: the run cannot be suspended, as far as this is known in advance, or the
            workload that its record names belongs to somebody else.
    """
    item = workload_now(api, namespace, record.workload)
    if item is not None:
        if label(item, names.OWNER_LABEL) != record.owner:
            name = record_name(record.owner)
            raise TaskError(
                f"the record of stack {record.stack} names {record.workload}, which is not of this "
                f"run, and is left as it is. Delete the record if that run no longer exists: "
                f"kubectl -n {namespace} delete configmap {name}"
            )
        refuse_to_suspend(api, namespace, item, record.suspend)
    return item


def _note_suspension(api: Api, namespace: str, record: Record, by_stack: str) -> None:
    """Note in a run's record which stack suspends it; empty: no stack does."""
    annotations = {names.SUSPENDED_BY_ANNOTATION: by_stack or None}
    api.patch(record_path(namespace, record.owner), {"metadata": {"annotations": annotations}})


def end_workload(api: Api, job: Job, item: Json, revision: str, grace_seconds: int) -> None:
    """Delete a workload of this stack in the foreground; wait until it and its pods are gone.

    Args:
        api: the cluster.
        job: the job of the stack that owns the workload.
        item: the workload.
        revision: the revision of the new workload, whose pods are not waited for.
        grace_seconds: how long the pods may take to save.

    Raises:
        TaskError: the workload or its pods are still there 60 s after `grace_seconds`.
    """
    kind, name = str(item["kind"]), str(item["metadata"]["name"])
    path = api.path(str(item["apiVersion"]), kind, job.namespace, name)
    say(f"{kind} {name} of this stack is ended (its pods have {grace_seconds} s to save)")
    uid = item["metadata"]["uid"]
    api.delete(path, {"propagationPolicy": "Foreground", "preconditions": {"uid": uid}})

    def ask() -> str:
        found = api.get(path)
        there = found is not None and found["metadata"]["uid"] == uid
        pods = live_pods_of(api, job.namespace, job.owner, revision)
        return pods or (f"{kind} {name} is being deleted" if there else "")

    wait_for(f"{kind} {name} and its pods to end", ask, grace_seconds + 60)


def longest_grace_seconds(api: Api, namespace: str, owner: str, coming_seconds: int) -> int:
    """How many seconds the pods of an owner's former run may take to save.

    Pods keep the grace period with which they were made, although the setting may have changed
    since. The run's record holds that time until the next hand-over writes the record.

    Args:
        api: the cluster.
        namespace: the namespace of the run.
        owner: the owner id of the run.
        coming_seconds: the grace period of the new run. The longer of the two is returned.
    """
    record = read_record(api, namespace, owner)
    return max(coming_seconds, record.grace_seconds if record else 0)


def lock_limit_seconds(api: Api, namespace: str, own_grace_seconds: int) -> int:
    """How many seconds a command should wait for the lock of a namespace.

    The holder of the lock waits for pods that save. So the limit contains the longest time that any
    run of the namespace has for that (the setting `terminationGraceSeconds`).

    Args:
        api: the cluster.
        namespace: the namespace of the runs.
        own_grace_seconds: how long the pods of the caller's own run may take to save.
    """
    longest = own_grace_seconds
    for item in list_if_allowed(api, COLLECTION.format(namespace), SELECTOR)[0] or []:
        with suppress(ValueError):  # A task that needs this record reports that it is unreadable.
            longest = max(longest, parse_record(item).grace_seconds)
    return LOCK_LIMIT_SECONDS + longest


def live_pods_of(api: Api, namespace: str, owner: str, not_revision: str = "") -> str:
    """The pods of an owner's training that have not ended, and their state, for a message.

    The text is empty if there are no such pods.

    Args:
        api: the cluster.
        namespace: the namespace of the pods.
        owner: the owner id.
        not_revision: a revision whose pods are left out; empty: the pods of all revisions count.
    """
    pods = api.list(PODS.format(namespace), names.training_selector(owner))
    live = [
        pod
        for pod in pods
        if not has_ended(pod)
        and (not not_revision or label(pod, names.REVISION_LABEL) != not_revision)
    ]
    return pods_and_machines(live, silent_machines(api, live))

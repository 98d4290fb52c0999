"""Ends or suspends workloads; their pods save before they go."""

from contextlib import suppress

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import list_if_allowed
from infra.kube.job import Job
from infra.kube.objects import Json, label, part
from infra.kube.paths import PODS
from infra.kube.pods.silent_machines import pods_and_machines, silent_machines
from infra.kube.queues.kueue import refuse_to_suspend, steer
from infra.kube.record import COLLECTION, SELECTOR, Record, parse_record, record_path
from infra.kube.say import say
from infra.kube.waiting import wait_for

ENDED = ("Succeeded", "Failed")
LOCK_LIMIT_SECONDS = 900
"""For which another hand-over may hold the lock, without the time that its runs take to save."""


def suspend_run(api: Api, namespace: str, record: Record, by_stack: str) -> None:
    """Note in a run's record who suspends it, and suspend it.

    Raises:
        TaskError: it cannot be suspended; then nothing was noted either.
    """
    workload = record.workload
    item = api.get(api.path(workload.api_version, workload.kind, namespace, workload.name))
    if item is not None:
        refuse_to_suspend(api, namespace, item, record.suspend)
    annotations = {names.SUSPENDED_BY_ANNOTATION: by_stack}
    api.patch(record_path(namespace, record.owner), {"metadata": {"annotations": annotations}})
    if item is not None:
        steer(api, namespace, item, record.suspend, active=False)


def end_workload(api: Api, job: Job, item: Json, revision: str, grace_seconds: int) -> None:
    """Delete a workload of ours in the foreground, and wait until it and its pods have gone.

    Args:
        api: the cluster.
        job: whose workload it is.
        item: the workload.
        revision: of the workload to come, whose pods are not waited for.
        grace_seconds: how long its pods may take to save.

    Raises:
        TaskError: they are still there 60 s after that.
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
    """How long pods of an owner's run of before may take to save.

    The settings may have changed since: those pods have the time with which they were made, which
    the run's record holds until another hand-over writes it.

    Args:
        api: the cluster.
        namespace: of the run.
        owner: of the run.
        coming_seconds: the time of the run that comes up, which counts if it is longer.
    """
    item = api.get(record_path(namespace, owner))
    return max(coming_seconds, parse_record(item).grace_seconds if item else 0)


def lock_limit_seconds(api: Api, namespace: str, own_grace_seconds: int) -> int:
    """For how long the lock of a namespace is waited for.

    Who holds it waits for pods that save, so it may hold it for the longest time that any run of
    the namespace has for that (the setting `terminationGraceSeconds`).

    Args:
        api: the cluster.
        namespace: of the runs.
        own_grace_seconds: how long the pods of the caller's own run may take to save.
    """
    longest = own_grace_seconds
    for item in list_if_allowed(api, COLLECTION.format(namespace), SELECTOR)[0] or []:
        with suppress(ValueError):  # one that somebody has changed; whoever needs it says so
            longest = max(longest, parse_record(item).grace_seconds)
    return LOCK_LIMIT_SECONDS + longest


def live_pods_of(api: Api, namespace: str, owner: str, not_revision: str = "") -> str:
    """The pods of an owner's training that have not ended, in words; empty when there are none."""
    pods = api.list(PODS.format(namespace), names.training_selector(owner))
    live = [
        pod
        for pod in pods
        if part(pod, "status").get("phase") not in ENDED
        and (not not_revision or label(pod, names.REVISION_LABEL) != not_revision)
    ]
    return pods_and_machines(live, silent_machines(api, live))

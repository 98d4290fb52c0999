"""A run whose platform moves to another namespace ends in the one of before, and then starts.

The engine makes the new pods first and deletes the old ones last. Where these hold the GPUs, the
new ones would wait for them without an end.
"""

from infra.kube import names
from infra.kube.api import Api
from infra.kube.findings import list_if_allowed
from infra.kube.job import Job
from infra.kube.making_place import live_pods_of, suspend_run
from infra.kube.record import ALL, SELECTOR, parse_record, record_path
from infra.kube.say import say
from infra.kube.waiting import wait_for


def end_in_former_namespace(job: Job, api: Api) -> None:
    """Let our run save and end where it is in another namespace; it has no record here yet.

    Where the credentials may not list the whole cluster's records, nothing is known of one.

    Raises:
        TaskError: its pods are still there a minute after their grace period.
    """
    if api.get(record_path(job.namespace, job.owner)):
        return
    found, _ = list_if_allowed(api, ALL, f"{SELECTOR},{names.OWNER_LABEL}={job.owner}")
    for item in found or ():
        record = parse_record(item)
        where = record.namespace
        if where == job.namespace:
            continue
        say(f"{record.workload} of this stack in namespace {where} is asked to save and ends")
        suspend_run(api, where, record, job.stack)
        wait_for(
            f"the pods of {record.workload} in namespace {where} to save and end",
            lambda where=where: live_pods_of(api, where, job.owner),
            record.grace_seconds + 60,
        )
        api.delete(record_path(where, job.owner), {})  # that namespace may stay, with data in it

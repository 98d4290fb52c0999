"""Ends a run in its former namespace when its platform moves to another namespace.

The engine makes the new pods first and deletes the old ones last. If the old pods hold the GPUs,
the new pods would wait for the GPUs forever. So the old pods have to end first.
"""

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import list_if_allowed, object_at
from infra.kube.job import Job
from infra.kube.objects import Json
from infra.kube.record import ALL, SELECTOR, parse_record, record_path
from infra.kube.runs.suspending import live_pods_of, suspend_run
from infra.kube.say import say
from infra.kube.waiting import wait_for


def end_in_former_namespace(job: Job, api: Api) -> None:
    """Let this stack's run save and end in its former namespace.

    Nothing happens if the run has a record in the job's namespace, because then it has not moved.
    If the credentials may not list the records of the whole cluster, only the namespaces in the
    job's `former_namespaces` are read.

    Raises:
        TaskError: pods of the run are still there a minute after their grace period.
    """
    if api.get(record_path(job.namespace, job.owner)):
        return
    found, _ = list_if_allowed(api, ALL, f"{SELECTOR},{names.OWNER_LABEL}={job.owner}")
    for item in _in_known_namespaces(job, api) if found is None else found:
        record = parse_record(item)
        where = record.namespace
        say(f"{record.workload} of this stack in namespace {where} is asked to save and ends")
        suspend_run(api, where, record, job.stack)
        wait_for(
            f"the pods of {record.workload} in namespace {where} to save and end",
            lambda where=where: live_pods_of(api, where, job.owner),
            record.grace_seconds + 60,
        )
        api.delete(record_path(where, job.owner), {})  # The namespace may stay, with data in it.


def _in_known_namespaces(job: Job, api: Api) -> list[Json]:
    """The records of this stack's run in its former namespaces.

    A note is printed for each namespace that these credentials may not read.
    """
    found: list[Json] = []
    for where in job.texts("former_namespaces"):
        item = object_at(api, record_path(where, job.owner))
        if item == "unseen":
            say(_unseen(where, job.owner))
        elif item:
            found.append(item)
    return found


def _unseen(where: str, owner: str) -> str:
    selector = names.training_selector(owner)
    return (
        f"note: the run of this stack was in namespace {where}, and these credentials may not get "
        "ConfigMaps there, so it is not asked to save and end first. If its pods still hold what "
        "the new ones need, let somebody who may see and delete them look:\n"
        f"  kubectl get pods --namespace {where} --selector {selector}"
    )

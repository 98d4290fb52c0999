"""The workload of a run before the hand-over, and the wait for one that is being deleted."""

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.objects import Json, annotation, is_ending, label, part
from infra.kube.record import read_record
from infra.kube.runs.hand_over_plan import Plan
from infra.kube.runs.name_taken import OWN_NAMES
from infra.kube.runs.suspending import live_pods_of, longest_grace_seconds
from infra.kube.runs.workload_now import workload_now
from infra.kube.waiting import wait_for


def own_workload(job: Job, api: Api, plan: Plan) -> Json | None:
    """The workload of this run; None: it does not exist.

    If a workload of this name belongs to another owner and is being deleted, this waits for its
    end. A `destroy` that was interrupted leaves such a workload.

    Raises:
        TaskError: the workload of this name belongs to another owner, or its end takes too long.
    """
    workload = plan.workload
    item = workload_now(api, job.namespace, workload)
    if item is None:
        return None
    owner = label(item, names.OWNER_LABEL)
    if owner == job.owner:
        return item
    whose = annotation(item, names.STACK_ANNOTATION) or owner or "no stack of this program"
    if is_ending(item):
        await_end(job, api, plan, item)
        return None
    raise TaskError(
        f"{workload} in namespace {job.namespace} belongs to {whose}, not to stack {job.stack}, "
        f"and is left as it is. To go on, {OWN_NAMES}"
    )


def await_end(job: Job, api: Api, plan: Plan, item: Json) -> None:
    """Wait until a workload that is being deleted, and its pods, are gone.

    Raises:
        TaskError: they are still there a minute after their grace period.
    """
    workload, uid = plan.workload, part(item, "metadata")["uid"]

    def ask() -> str:
        found = workload_now(api, job.namespace, workload)
        if found is None or part(found, "metadata")["uid"] != uid:
            return ""
        pods = live_pods_of(api, job.namespace, label(item, names.OWNER_LABEL))
        return pods or "it is being deleted"

    what = f"{workload}, which has the name of this run and is being deleted, to be gone"
    owner = label(item, names.OWNER_LABEL)
    grace_seconds = longest_grace_seconds(api, job.namespace, owner, plan.grace_seconds)
    wait_for(what, ask, grace_seconds + 60)


def await_left_pods(job: Job, api: Api, plan: Plan) -> None:
    """Wait for the pods of this run whose workload somebody has deleted, because they still save.

    Raises:
        TaskError: they are still there a minute after their grace period.
    """
    limit = longest_grace_seconds(api, job.namespace, job.owner, plan.grace_seconds) + 60
    what = "the pods of this stack's run, whose workload was deleted, to save and end"
    wait_for(what, lambda: live_pods_of(api, job.namespace, job.owner), limit)


def former_workload(job: Job, api: Api, plan: Plan, own: Json | None) -> Json | None:
    """The former workload of this run, if it has another revision, kind or name than the new one.

    None: there is no such workload.
    """
    if own and label(own, names.REVISION_LABEL) != plan.revision:
        return own
    record = read_record(api, job.namespace, job.owner)
    if record is None or record.workload == plan.workload:
        return None
    former = workload_now(api, job.namespace, record.workload)
    if former is None or label(former, names.OWNER_LABEL) != job.owner:
        return None
    # A record may have been changed. The stack's namespace and its claim have no such label.
    return former if label(former, names.REVISION_LABEL) else None

"""The runs of other stacks that a hand-over finds, and the wait until they make room."""

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.job import Job
from infra.kube.objects import label
from infra.kube.record import COLLECTION, SELECTOR, parse_record, read_record
from infra.kube.runs.busy import OtherRun, other_run, runs_to_replace
from infra.kube.runs.hand_over_plan import Plan
from infra.kube.runs.suspending import live_pods_of
from infra.kube.runs.workload_now import workload_now
from infra.kube.waiting import wait_for


def other_runs(job: Job, api: Api, plan: Plan) -> tuple[list[OtherRun], list[OtherRun]]:
    """The runs of other stacks in this namespace.

    Returns:
        First, the runs that hold GPUs or CPUs or are about to take them. Second, the suspended or
        deleted runs whose pods still save. Runs of the second group exist after an `up` was
        interrupted while it waited for them, and after somebody has deleted a workload, because its
        pods may outlive it.
    """
    found, leaving = list[OtherRun](), list[OtherRun]()
    for item in api.list(COLLECTION.format(job.namespace), SELECTOR):
        if label(item, names.OWNER_LABEL) == job.owner:
            continue
        record = parse_record(item)
        if record.workload == plan.workload:
            continue  # An older version of this program let two stacks have one workload.
        workload = workload_now(api, job.namespace, record.workload)
        if run := other_run(record, workload, api.now()):
            found.append(run)
            continue
        if live_pods_of(api, job.namespace, record.owner):
            leaving.append(OtherRun(record, coming_up=False))
    return found, leaving


def in_the_way(leaving: list[OtherRun], staying: list[OtherRun], plan: Plan) -> list[OtherRun]:
    """The runs in `leaving` whose pods have to end before this run fits beside those in `staying`.

    Args:
        leaving: suspended or deleted runs whose pods still save.
        staying: the runs that keep their GPUs.
        plan: the run that comes up.
    """
    left = plan.gpus_total - sum(run.record.gpus for run in staying)
    return runs_to_replace(leaving, plan.gpus, left)


def holders(others: list[OtherRun], plan: Plan) -> list[OtherRun]:
    """The runs that use GPUs if this run does, or else those that use only CPUs.

    This function is pure.
    """
    return [run for run in others if bool(run.record.gpus) == bool(plan.gpus)]


def wait_for_runs(
    api: Api, plan: Plan, runs: list[OtherRun], limit_seconds: float, limit_name: str
) -> None:
    """Wait until the state of these runs has changed, so that the hand-over can be tried again.

    The wait is over when none of them holds its GPUs or CPUs any more. A run without a workload is
    no longer waited for when its workload has been made. With `when_busy: wait`, the wait also ends
    when this run fits beside those that are left, so it starts as soon as there is enough room.
    """

    def ask() -> str:
        left, said = list[OtherRun](), list[str]()
        for run in runs:
            record = run.record
            new = read_record(api, record.namespace, record.owner)
            workload = workload_now(api, record.namespace, record.workload) if new else None
            now = other_run(new, workload, api.now()) if new else None
            if now and now.coming_up == run.coming_up:
                left.append(now)
                pods = live_pods_of(api, record.namespace, record.owner)
                said.append(f"{now} ({pods})" if pods else str(now))
        if plan.when_busy == "wait" and not runs_to_replace(left, plan.gpus, plan.gpus_total):
            return ""
        return "; ".join(said)

    which = ", ".join(f"{run.record.workload} of stack {run.record.stack}" for run in runs)
    all_go = plan.when_busy != "wait" or len(runs) == 1
    what = "the end of" if all_go else "room beside"
    wait_for(f"{what} {which}", ask, limit_seconds, limit_name)

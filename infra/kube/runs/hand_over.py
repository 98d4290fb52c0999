"""Task `hand-over`: suspends the runs that have to make room, and records which run has the GPUs.

The task refuses a run before it changes anything. It decides and writes under the lock of the
namespace, so two `pulumi up` at the same time cannot both take the same GPUs.

If the workload of an unchanged run is gone or has failed, the engine's state may still contain it,
and then the engine does not make it again. In this case the task leaves other runs alone, and the
wait for the training says what to do. If the engine does make the workload again, for example after
`pulumi refresh`, a hook runs this task once more before that, with `made_again`
(infra/run/workload_hooks.py).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, TaskError
from infra.kube.job import Job
from infra.kube.objects import Json, annotation, is_ending, label, part
from infra.kube.paths import NAMESPACES
from infra.kube.queues.kueue import is_stopped, steer
from infra.kube.record import COLLECTION, SELECTOR, Record, Ttl, parse_record, record_path
from infra.kube.runs.busy import COMING_UP_SECONDS, OtherRun, other_run, runs_to_replace
from infra.kube.runs.gone import how_ended_or_empty
from infra.kube.runs.lock import Lock, held, holder_text
from infra.kube.runs.moved_run import end_in_former_namespace
from infra.kube.runs.name_taken import OWN_NAMES, refuse_name_of_other_run
from infra.kube.runs.suspending import (
    end_workload,
    live_pods_of,
    lock_limit_seconds,
    longest_grace_seconds,
    suspend_run,
    workload_to_suspend,
)
from infra.kube.runs.workload_now import workload_now
from infra.kube.say import say
from infra.kube.waiting import wait_for
from infra.kube.workload import Workload, failed_condition

WHEN_BUSY = ("replace", "wait", "refuse")
OTHER_CHOICE = "pulumi config set whenBusy wait (or replace)"
AT_THE_FLAGS_LIMIT = "the longest wait of --when-busy wait; type the command again to wait on"
LEFT_ALONE = "and no other run has to make room unless it is made again"


@dataclass(frozen=True)
class Plan:
    """The fields of the task's job, after they have been checked."""

    workload: Workload
    revision: str
    gpus: int
    gpus_total: int
    suspend: dict[str, Any]
    resume: dict[str, Any]
    when_busy: str
    request: str
    grace_seconds: int
    wait_timeout_seconds: int
    over: tuple[str, ...]
    queue: str
    """The queue of Kueue in which the run waits; empty: the run is in no queue."""
    ttl: Ttl | None
    """When the workload is removed after its end; None: it stays."""
    other_choice: str
    """The command by which the user lets this run wait for other runs or replace them."""
    by_flag: bool
    """Whether a command's option has set `when_busy`; otherwise the stack's setting has."""
    made_again: bool
    """Whether the engine is about to make the workload although nothing of the run has changed."""

    @staticmethod
    def of(job: Job) -> "Plan":
        """Check the fields of the job. Raises ValueError, which names the field that is wrong."""
        when_busy = job.text("when_busy")
        if when_busy not in WHEN_BUSY:
            known = ", ".join(WHEN_BUSY)
            raise ValueError(
                f"whenBusy: {when_busy!r} cannot be used: there is no such choice. "
                f"Set one of {known}."
            )
        return Plan(
            workload=Workload.from_json(job.mapping("workload")),
            revision=job.text("revision"),
            gpus=job.number("gpus"),
            gpus_total=job.number("gpus_total"),
            suspend=job.mapping("suspend"),
            resume=job.mapping("resume"),
            when_busy=when_busy,
            request=job.text("request"),
            grace_seconds=job.number("grace_seconds"),
            wait_timeout_seconds=job.number("wait_timeout_seconds"),
            over=(*job.texts("done"), *job.texts("failed")),
            queue=str(job.fields.get("queue") or ""),
            ttl=Ttl.from_json(job.mapping("ttl")),
            other_choice=str(job.fields.get("other_choice") or OTHER_CHOICE),
            by_flag=bool(job.fields.get("by_flag")),
            made_again=bool(job.fields.get("made_again")),
        )


def create(job: Job, api: Api, check_again: Callable[[], None] = lambda: None) -> None:
    """Make room for this run, write its record, and resume its workload if it is suspended.

    Args:
        job: the job of the task.
        api: the cluster.
        check_again: is called each time the lock is held, before anything is changed. A command
            that has read the run before it had the lock ends the hand-over by an error of this
            function.

    Raises:
        TaskError: the name of the workload or the GPUs belong to another stack, the namespace is
            gone, or a time limit is reached.
    """
    plan = Plan.of(job)
    if api.get(f"{NAMESPACES}/{job.namespace}") is None:
        raise TaskError(_namespace_is_gone(job))
    end = time.monotonic() + plan.wait_timeout_seconds
    holder = holder_text(f"stack {job.stack}")
    while True:
        lock_limit = lock_limit_seconds(api, job.namespace, plan.grace_seconds)
        with held(api, job.namespace, holder, lock_limit) as lock:
            check_again()
            waited_for = _hand_over(job, api, plan, lock)
        if not waited_for:
            return
        if plan.when_busy == "wait":
            limit = max(end - time.monotonic(), 0)
            name = AT_THE_FLAGS_LIMIT if plan.by_flag else "whenBusyTimeoutSeconds"
        else:
            limit, name = COMING_UP_SECONDS + 30, ""
        _wait_for_runs(api, plan, waited_for, limit, name)


def delete(job: Job, api: Api) -> None:
    """Remove the record of this stack's run. The engine has deleted the workload before that."""
    path = record_path(job.namespace, job.owner)
    item = api.get(path)
    if item and label(item, names.OWNER_LABEL) == job.owner:
        api.delete(path, {})
        say(f"the record of stack {job.stack} is removed")


def _hand_over(job: Job, api: Api, plan: Plan, lock: Lock) -> list[OtherRun]:
    """Try the hand-over once, while the caller holds the lock.

    Returns:
        The runs for whose end or start the caller has to wait before it tries again; empty: the
        hand-over is done, and this run may start.
    """
    own = _own_workload(job, api, plan)
    if own is None:
        refuse_name_of_other_run(job, api, plan.workload)
    if why := _others_stay(job, api, plan, own):
        lock.check()
        data = {"request": plan.request, **({"ttl": plan.ttl.to_text()} if plan.ttl else {})}
        api.patch(record_path(job.namespace, job.owner), {"data": data})
        say(why)
        return []
    former = _former_workload(job, api, plan, own)
    others, leaving = _other_runs(job, api, plan)
    # For a run in a queue, Kueue decides which runs have to end, and that may take days.
    going = [] if plan.queue else runs_to_replace(others, plan.gpus, plan.gpus_total)
    if going and plan.when_busy == "refuse":
        raise TaskError(_refusal(going, plan))
    coming_up = [run for run in going if run.coming_up]
    if going and (plan.when_busy == "wait" or coming_up):
        return coming_up if plan.when_busy == "replace" else _holders(others, plan)
    for run in going:  # None is suspended if one of them cannot be.
        workload_to_suspend(api, job.namespace, run.record)
    for run in going:
        lock.check()
        say(f"{run} is asked to save, and is suspended")
        suspend_run(api, job.namespace, run.record, job.stack)
    if former:
        lock.check()
        grace_seconds = longest_grace_seconds(api, job.namespace, job.owner, plan.grace_seconds)
        end_workload(api, job, former, plan.revision, grace_seconds)
    elif own is None:
        _await_left_pods(job, api, plan)
    staying = [run for run in others if run not in going]
    still_there = [] if plan.queue else _in_the_way(leaving, staying, plan)
    for run in (*going, *still_there):
        what = f"the pods of {run.record.workload} of stack {run.record.stack} to save and end"
        limit = run.record.grace_seconds + 60
        wait_for(what, lambda run=run: live_pods_of(api, job.namespace, run.record.owner), limit)
    end_in_former_namespace(job, api)
    lock.check()
    _write_record(job, api, plan)
    if own and own is not former and is_stopped(api, job.namespace, own, plan.suspend):
        say(f"{plan.workload} was suspended and is resumed")
        steer(api, job.namespace, own, plan.resume, active=True)
    return []


def _others_stay(job: Job, api: Api, plan: Plan, own: Json | None) -> str:
    """Why no other run has to make room, although our workload is gone or has failed.

    The text is empty if other runs may have to make room. A finished run needs no place, because a
    workload that is made again for it ends at once.
    """
    if own and label(own, names.REVISION_LABEL) != plan.revision:
        return ""
    if own and not failed_condition(own, list(plan.over)):
        return ""
    item = api.get(record_path(job.namespace, job.owner))
    record = parse_record(item) if item else None
    if record is None or (record.workload, record.revision) != (plan.workload, plan.revision):
        return ""
    placement = plan.ttl.placement if plan.ttl else {}
    if not own and _had_finished(api, record, placement):
        return f"no other run has to make room: {plan.workload} had finished before it was removed"
    state = "has failed" if own else "is not there"
    return "" if plan.made_again else f"{plan.workload} {state}, {LEFT_ALONE}"


def _had_finished(api: Api, record: Record, placement: Json) -> bool:
    return replace(record, how_ended=how_ended_or_empty(api, record, placement)).had_finished


def _own_workload(job: Job, api: Api, plan: Plan) -> Json | None:
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


def _await_left_pods(job: Job, api: Api, plan: Plan) -> None:
    """Wait for the pods of this run whose workload somebody has deleted, because they still save.

    Raises:
        TaskError: they are still there a minute after their grace period.
    """
    limit = longest_grace_seconds(api, job.namespace, job.owner, plan.grace_seconds) + 60
    what = "the pods of this stack's run, whose workload was deleted, to save and end"
    wait_for(what, lambda: live_pods_of(api, job.namespace, job.owner), limit)


def _former_workload(job: Job, api: Api, plan: Plan, own: Json | None) -> Json | None:
    """The former workload of this run, if it has another revision, kind or name than the new one.

    None: there is no such workload.
    """
    if own and label(own, names.REVISION_LABEL) != plan.revision:
        return own
    item = api.get(record_path(job.namespace, job.owner))
    if item is None:
        return None
    before = parse_record(item).workload
    if before == plan.workload:
        return None
    former = workload_now(api, job.namespace, before)
    ours = former is not None and label(former, names.OWNER_LABEL) == job.owner
    return former if ours else None


def _other_runs(job: Job, api: Api, plan: Plan) -> tuple[list[OtherRun], list[OtherRun]]:
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


def _in_the_way(leaving: list[OtherRun], staying: list[OtherRun], plan: Plan) -> list[OtherRun]:
    """The runs in `leaving` whose pods have to end before this run fits beside those in `staying`.

    Args:
        leaving: suspended or deleted runs whose pods still save.
        staying: the runs that keep their GPUs.
        plan: the run that comes up.
    """
    left = plan.gpus_total - sum(run.record.gpus for run in staying)
    return runs_to_replace(leaving, plan.gpus, left)


def _holders(others: list[OtherRun], plan: Plan) -> list[OtherRun]:
    """The runs that use GPUs if this run does, or else those that use only CPUs.

    This function is pure.
    """
    return [run for run in others if bool(run.record.gpus) == bool(plan.gpus)]


def _wait_for_runs(
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
            item = api.get(record_path(record.namespace, record.owner))
            workload = workload_now(api, record.namespace, record.workload) if item else None
            now = other_run(parse_record(item), workload, api.now()) if item else None
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


def _refusal(going: list[OtherRun], plan: Plan) -> str:
    which = "; ".join(str(run) for run in going)
    need = f"{plan.gpus} of {plan.gpus_total} GPUs" if plan.gpus else "the CPUs"
    stack = going[0].record.stack
    chosen = "--when-busy refuse" if plan.by_flag else "whenBusy: refuse"
    return (
        f"{chosen}, and {need} that this run needs are taken by {which}. Ways out: wait until it "
        f"is finished; end it by `pulumi destroy --stack {stack}`; or let this run wait or "
        f"replace it: {plan.other_choice}"
    )


def _namespace_is_gone(job: Job) -> str:
    stacks = dict.fromkeys([job.text("platform_stack"), job.stack])
    commands = "".join(f"\n  pulumi up --refresh --stack {stack}" for stack in stacks)
    return (
        f"namespace {job.namespace} is gone from the cluster: somebody has deleted it with all "
        "that was in it. The data are kept. With --refresh the engine sees what is missing, and "
        f"makes it again:{commands}"
    )


def _write_record(job: Job, api: Api, plan: Plan) -> None:
    record = Record(
        owner=job.owner,
        stack=job.stack,
        workload=plan.workload,
        revision=plan.revision,
        gpus=plan.gpus,
        gpus_total=plan.gpus_total,
        suspend=plan.suspend,
        resume=plan.resume,
        over=plan.over,
        grace_seconds=plan.grace_seconds,
        request=plan.request,
        since=api.now(),
        ttl=plan.ttl,
    ).to_object(job.namespace)
    path = record_path(job.namespace, job.owner)
    before = api.get(path)
    if before is None:
        try:
            api.create(COLLECTION.format(job.namespace), record)
        except ApiError as error:
            if error.status != 409:  # 409: an earlier try of this request has made it
                raise
    else:
        owner = label(before, names.OWNER_LABEL)
        if owner != job.owner:
            raise TaskError(f"ConfigMap {before['metadata']['name']} belongs to owner {owner}")
        api.replace(path, record)
    say(f"the run of stack {job.stack} may start in namespace {job.namespace}")

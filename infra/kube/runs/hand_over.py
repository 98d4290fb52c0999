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
from dataclasses import replace

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, TaskError
from infra.kube.job import Job
from infra.kube.objects import Json, label
from infra.kube.paths import NAMESPACES
from infra.kube.queues.kueue import is_stopped, steer
from infra.kube.record import COLLECTION, Record, read_record, record_path
from infra.kube.runs.busy import COMING_UP_SECONDS, OtherRun, runs_to_replace
from infra.kube.runs.gone import how_ended_or_empty
from infra.kube.runs.gone_pod import Asker
from infra.kube.runs.hand_over_plan import Plan
from infra.kube.runs.lock import Lock, held, holder_text
from infra.kube.runs.moved_run import end_in_former_namespace
from infra.kube.runs.name_taken import refuse_name_of_other_run
from infra.kube.runs.other_runs import holders, in_the_way, other_runs, wait_for_runs
from infra.kube.runs.own_workload import await_left_pods, former_workload, own_workload
from infra.kube.runs.suspending import (
    end_workload,
    live_pods_of,
    lock_limit_seconds,
    longest_grace_seconds,
    suspend_run,
    workload_to_suspend,
)
from infra.kube.say import say
from infra.kube.waiting import wait_for
from infra.kube.workload import failed_condition

AT_THE_FLAGS_LIMIT = "the longest wait of --when-busy wait; type the command again to wait on"
LEFT_ALONE = "and no other run has to make room unless it is made again"


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
        wait_for_runs(api, plan, waited_for, limit, name)


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
    own = own_workload(job, api, plan)
    if own is None:
        refuse_name_of_other_run(job, api, plan.workload)
    if why := _others_stay(job, api, plan, own):
        lock.check()
        data = {"request": plan.request, **({"ttl": plan.ttl.to_text()} if plan.ttl else {})}
        api.patch(record_path(job.namespace, job.owner), {"data": data})
        say(why)
        return []
    former = former_workload(job, api, plan, own)
    others, leaving = other_runs(job, api, plan)
    # For a run in a queue, Kueue decides which runs have to end, and that may take days.
    going = [] if plan.queue else runs_to_replace(others, plan.gpus, plan.gpus_total)
    if going and plan.when_busy == "refuse":
        raise TaskError(_refusal(going, plan))
    coming_up = [run for run in going if run.coming_up]
    if going and (plan.when_busy == "wait" or coming_up):
        return coming_up if plan.when_busy == "replace" else holders(others, plan)
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
        await_left_pods(job, api, plan)
    staying = [run for run in others if run not in going]
    still_there = [] if plan.queue else in_the_way(leaving, staying, plan)
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
    record = read_record(api, job.namespace, job.owner)
    if record is None or (record.workload, record.revision) != (plan.workload, plan.revision):
        return ""
    if not own and _had_finished(api, record, plan):
        return f"no other run has to make room: {plan.workload} had finished before it was removed"
    state = "has failed" if own else "is not there"
    return "" if plan.made_again else f"{plan.workload} {state}, {LEFT_ALONE}"


def _had_finished(api: Api, record: Record, plan: Plan) -> bool:
    ttl, asker = plan.ttl, None
    if ttl and not plan.by_flag:  # A command's plan is from the record (steer.py).
        asker = Asker(ttl.image, ttl.claim, ttl.placement)
    return replace(record, how_ended=how_ended_or_empty(api, record, asker)).had_finished


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

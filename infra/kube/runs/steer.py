"""Stops and resumes a run without `pulumi up`, for `./disttrain stop` and `./disttrain resume`.

A stopped run keeps its objects and its data. Only its pods end, after they have saved. Other stacks
treat it like a run that was replaced: no run has to wait for it. The next `pulumi up` of its own
stack resumes it.
"""

from dataclasses import asdict, replace

from infra.kube.api_server.api import Api
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.names import SAVED_STEP_ANNOTATION
from infra.kube.objects import Json, label
from infra.kube.queues.kueue import is_stopped
from infra.kube.record import Record, read_record, record_path
from infra.kube.runs import hand_over
from infra.kube.runs.busy import NOT_THERE, other_run
from infra.kube.runs.gone import gone_words, how_ended_or_empty
from infra.kube.runs.gone_pod import Asker, harmless
from infra.kube.runs.lock import held, holder_text
from infra.kube.runs.suspending import live_pods_of, lock_limit_seconds, suspend_run
from infra.kube.runs.workload_now import workload_now
from infra.kube.waiting import wait_for
from infra.kube.workload import true_condition
from infra.names import QUEUE_LABEL

SLACK_SECONDS = 60  # added to the time that the pods have to save


def find_record(api: Api, namespace: str, owner: str) -> Record:
    """The record of a stack's run.

    Raises:
        TaskError: there is no record, because no `pulumi up` of the stack has reached its training.
        ValueError: somebody has changed the record.
    """
    record = read_record(api, namespace, owner)
    if record is None:
        raise TaskError(
            f"no run of this stack is in namespace {namespace}: no `pulumi up` of it has reached "
            "the training. If one is under way, wait until it starts the training, or end it there "
            "by Ctrl-C. Otherwise run `pulumi up` first"
        )
    return record


def find_workload(api: Api, record: Record, own: Asker | None) -> Json:
    """The workload of a run.

    Args:
        api: the cluster.
        record: the record of the run.
        own: what the run's stack gives, by its outputs, to the pod that reads how the run ended if
            the workload was removed after its end; None: no such pod is started.

    Raises:
        TaskError: the workload is not there: it was removed after its end, somebody has deleted
            it or the definition of its kind, or `pulumi up` is about to make it.
    """
    workload = record.workload
    item = workload_now(api, record.namespace, workload)
    if item is None:
        found = replace(record, how_ended=how_ended_or_empty(api, record, own))
        if not found.how_ended and other_run(record, None, api.now()):
            raise TaskError(f"{workload} is not there: {NOT_THERE}. Type this again in a moment")
        raise TaskError(gone_words(found))
    return item


def stop(api: Api, record: Record, own: Asker | None = None) -> str:
    """Stop the run: let its pods save and end, and wait until they have ended.

    Args:
        api: the cluster.
        record: the record of the run.
        own: as in `find_workload`.

    Returns:
        Why there is nothing to stop; empty: the run was stopped by this call.

    Raises:
        TaskError: the workload is gone, the run has been changed since its record was read, or pods
            are still there SLACK_SECONDS after the end of their grace period.
    """
    holder = holder_text(f"./disttrain stop of stack {record.stack}")
    lock_limit = lock_limit_seconds(api, record.namespace, record.grace_seconds)
    with held(api, record.namespace, holder, lock_limit) as lock:
        _refuse_newer_run(api, record)
        item = find_workload(api, record, own)
        if over := true_condition(item, list(record.over)):
            return f"{record.workload} has ended already ({over})"
        already = is_stopped(api, record.namespace, item, record.suspend)
        lock.check()
        if not already:
            suspend_run(api, record.namespace, record, record.stack)
        wait_for(
            f"the pods of {record.workload} to save and end",
            lambda: live_pods_of(api, record.namespace, record.owner),
            record.grace_seconds + SLACK_SECONDS,
        )
    return f"{record.workload} is stopped already" if already else ""


def note_saved_step(api: Api, record: Record, step: int) -> None:
    """Note in the record of a stopped run the step of its newest checkpoint, for `status`.

    The hand-over that lets the run go on writes a new record without this step.
    """
    annotations = {SAVED_STEP_ANNOTATION: str(step)}
    path = record_path(record.namespace, record.owner)
    api.patch(path, {"metadata": {"annotations": annotations}})


def resume(
    api: Api, record: Record, when_busy: str, wait_seconds: int, own: Asker | None = None
) -> str:
    """Resume a stopped run by the same hand-over as `pulumi up`.

    Args:
        api: the cluster.
        record: the record of the run.
        when_busy: what to do if another run has the GPUs: replace, wait or refuse.
        wait_seconds: the longest wait for other runs with `wait`.
        own: as in `find_workload`.

    Returns:
        Why there is nothing to resume; empty: the run was resumed by this call.

    Raises:
        TaskError: the workload is gone, the run has been changed since its record was read, another
            run has the GPUs, or a limit is reached.
    """
    item = find_workload(api, record, own)
    if over := true_condition(item, list(record.over)):
        return f"{record.workload} has ended already ({over})"
    if not is_stopped(api, record.namespace, item, record.suspend):
        return f"{record.workload} is not stopped"
    name, ttl = record.stack.rpartition("/")[2], record.ttl
    fields = {
        "workload": record.workload.to_json(),
        "revision": record.revision,
        "gpus": record.gpus,
        "gpus_total": record.gpus_total,
        "suspend": record.suspend,
        "resume": record.resume,
        "done": list(record.over),
        "when_busy": when_busy,
        "request": record.request,
        # The hand-over gives a pod what the stack's settings demand, but this is from a record.
        "ttl": {**asdict(ttl), "placement": harmless(ttl.placement)} if ttl else {},
        "grace_seconds": record.grace_seconds,
        "wait_timeout_seconds": wait_seconds,
        "platform_stack": record.stack,
        "queue": label(item, QUEUE_LABEL),
        "by_flag": True,
        "other_choice": f"./disttrain resume --stack {name} --when-busy wait (or replace)",
    }
    job = Job(api.access, record.namespace, record.owner, record.stack, fields)

    def check_again() -> None:
        _refuse_newer_run(api, record)
        find_workload(api, record, own)

    hand_over.create(job, api, check_again)
    return ""


def _refuse_newer_run(api: Api, record: Record) -> None:
    """Look again at the record, under the lock, because a command reads it before it has the lock.

    While the command waits, a `pulumi up` of the same stack may make a new workload, which the
    command would take for the former one and delete.

    Raises:
        TaskError: the record has been written anew or removed since the command has read it.
    """
    now = read_record(api, record.namespace, record.owner)
    if now is None:
        raise TaskError(
            f"nothing was changed: stack {record.stack} has no run any more, because its run has "
            "been removed meanwhile, such as by pulumi destroy"
        )
    if now.since != record.since:
        raise TaskError(
            f"nothing was changed: a `pulumi up` or `./disttrain resume` of stack {record.stack} "
            "came first and has started its run anew. ./disttrain status shows it; type this again "
            "if it is still what you want"
        )

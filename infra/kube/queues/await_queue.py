"""Waits until a new run has its place in a queue of Kueue, before `await` waits for its pods.

A run may wait in a queue for days. So unless the stack says `whenBusy: wait`, `pulumi up` ends well
once the run is in its queue, and prints what it waits for. The run starts by itself later.

Kueue may put a run into a queue although no setting names one. If the credentials may not read
Kueue's Workloads, `pulumi up` then goes on with what it can read.
"""

import time

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import unless_forbidden
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.objects import Json
from infra.kube.queues.kueue import is_stopped, kueue_workload, queue_of
from infra.kube.queues.queue_findings import out_of_queue, waiting
from infra.kube.queues.queue_place import InQueue, ignores_topology
from infra.kube.queues.unqueued_findings import held_without_queue
from infra.kube.record import read_record
from infra.kube.say import say
from infra.kube.waiting import Patience, wait_for
from infra.kube.workload import Workload, is_suspended

# Parts of the lines about a run that waits (`ends_well`) and about a run that does not wait. The
# output `queuePlace` finds the lines by them, because Kueue may put a run into a queue although the
# stack names none.
WAITS, HAS_PLACE = " waits in queue ", " has its place in queue "
STOPPED = " was stopped by ./disttrain stop"
QUEUE_SECONDS = 20.0  # if there is quota, Kueue decides within a second


class SuspendedError(TaskError):
    """Somebody else than the run's own user has suspended it. The text says how to go on."""


def wait_in_queue(
    job: Job, api: Api, workload: Workload, path: str, suspend: Json, limit: int
) -> bool:
    """Wait until the run has its place in its queue.

    Args:
        job: the job of the task that waits.
        api: the cluster.
        workload: the workload of the run.
        path: the path of the workload.
        suspend: the suspend patch of the workload's kind.
        limit: how many seconds to wait for the place; 0: only until it is clear that Kueue does not
            give it now.

    Returns:
        True: the run has its place, or is in no queue. False: `up` may end, because the run waits
        in its queue or its user has stopped it. The reason was printed.

    Raises:
        SuspendedError: somebody else has suspended the run.
        TaskError: the run asks for more than its queue can ever give, or the limit is reached.
    """
    patience = Patience(QUEUE_SECONDS, time.monotonic)
    waits, notes, stopped = list[InQueue](), list[str](), list[str]()

    def ask() -> str:
        waits.clear()
        item = api.get(path)
        if item is None:
            return ""  # The wait for the pods reports this.
        if seen_stopped(api, job.namespace, item, suspend):
            stopped.append(stopped_text(job, api, workload, item))
            return ""
        place = held_back(api, job.namespace, item, suspend)
        if place is None:
            notes[:] = ignored(api, job.namespace, item, workload)
            if (queue := queue_of(item)) and not notes:
                notes[:] = [f"{workload}{HAS_PLACE}{queue}"]
            return ""
        waits.append(place)
        is_over = patience.is_over(workload.name)
        if is_over and place.never:
            raise TaskError(f"{workload} can never start {place.words}. {place.remedy}")
        return "" if is_over and not limit else place.words

    what = f"{workload} to get its place in the queue"
    wait_for(what, ask, limit or QUEUE_SECONDS * 3, "whenBusyTimeoutSeconds" if limit else "")
    for note in stopped or notes:
        say(note)
    if stopped:
        return False
    if not waits:
        return True
    say(ends_well(workload, waits[0]))
    return False


def seen_stopped(api: Api, namespace: str, item: Json, suspend: Json) -> bool:
    """Whether somebody has stopped a run.

    False also if these credentials may not read that. The run then counts as one that waits.
    """
    return unless_forbidden(lambda: is_stopped(api, namespace, item, suspend), lambda _: False)


def held_back(api: Api, namespace: str, item: Json, suspend: Json) -> InQueue | None:
    """What a run waits for in its queue; None: it has its place, or is in no queue."""
    if not is_suspended(item, suspend):
        return None
    words = f"in queue {queue_of(item)}; what it waits for may not be read: "
    return unless_forbidden(
        lambda: waiting(api, namespace, item),
        lambda error: InQueue(None, f"{words}{error}"),
    )


def ignored(api: Api, namespace: str, item: Json, workload: Workload) -> list[str]:
    """What Kueue ignores of the settings of a run that has started, each as a sentence.

    For each object that Kueue watches, it makes a Workload before it gives the object its place. So
    an object without a Workload is not watched.
    """
    queue = queue_of(item)
    if not queue:
        return []
    own = unless_forbidden(lambda: kueue_workload(api, namespace, item), str)
    if isinstance(own, str):
        return [f"{workload}{HAS_PLACE}{queue}, as it is not suspended; more was not seen: {own}"]
    if own is None:
        return [
            f"{workload} trains without a place in queue {queue}, because Kueue does not watch "
            f"objects of kind {workload.kind}: ask the administrator of Kueue to add that kind to "
            "integrations.frameworks of its configuration"
        ]
    if ignores_topology(own):
        return [
            f"{workload} starts on any machines, because Kueue ignores the setting placement: ask "
            "the administrator of Kueue to turn on its feature gate TopologyAwareScheduling (by "
            "default it is on since Kueue 0.14)"
        ]
    return []


def ends_well(workload: Workload, place: InQueue) -> str:
    """The line about a run that waits, with which `pulumi up` ends."""
    if place.since is None:  # Kueue has not looked at the run, and perhaps never will.
        return f"{workload} waits {place.words}. ./disttrain status shows whether it has begun"
    return (
        f"{workload} waits {place.words}. It starts by itself; ./disttrain status shows when. "
        "(whenBusy: wait makes `pulumi up` wait for that)"
    )


def queue_place(said: str, queue: str, now: str = "") -> str:
    """The text of the output `queuePlace`. This function is pure.

    Args:
        said: all that the task `await` has printed, perhaps during an earlier `pulumi up`.
        queue: the LocalQueue that the stack names for the run; empty: it names none.
        now: what the cluster said about the place when this `pulumi up` began; empty: nothing.
    """
    phrases = (WAITS, HAS_PLACE, *([STOPPED] if queue else []))
    lines = [line for line in said.splitlines() if any(phrase in line for phrase in phrases)]
    last = lines[-1] if lines else ""
    had_no_place = bool(last) and HAS_PLACE not in last
    if now and (had_no_place or WAITS in now):
        return f"when pulumi up began: {now}"
    if not queue and not last:
        return "the run is in no queue of Kueue"
    told = last or f"the run had its place in queue {queue}"
    return f"when pulumi up last waited for the run: {told}"


def stopped_text(job: Job, api: Api, workload: Workload, item: Json) -> str:
    """The line about a run that its user has stopped by ./disttrain stop.

    Args:
        job: the job of the task that waits.
        api: the cluster.
        workload: the workload of the run.
        item: the suspended object of the workload.

    Raises:
        SuspendedError: somebody else has suspended the run.
    """
    record = read_record(api, job.namespace, job.owner)
    by_stack = record.suspended_by if record else ""
    if by_stack == job.stack:
        stack = job.stack.rpartition("/")[2]
        return (
            f"{workload}{STOPPED}, so `pulumi up` does not wait for its first step. It goes on "
            f"with: ./disttrain resume --stack {stack}, or with pulumi up"
        )
    if not by_stack and (held := held_without_queue(api, job.namespace, item)):
        raise SuspendedError(f"{workload} does not start: {held}")
    out = "" if by_stack else out_of_queue(api, job.namespace, item)
    if out:
        raise SuspendedError(
            f"{workload} does not start: {out}. `pulumi up` puts it back, and it goes on from what "
            "it has saved"
        )
    who = f"by stack {by_stack}, whose run took its place" if by_stack else "by somebody"
    raise SuspendedError(
        f"{workload} was suspended {who}; `pulumi up` resumes it from what it has saved"
    )

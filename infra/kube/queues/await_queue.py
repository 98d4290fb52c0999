"""The wait of a new run for its place in a queue of Kueue, before its pods are waited for.

A queue may hold a run back for days. So unless the stack says `whenBusy: wait`, `pulumi up` ends
well once the run is in its queue, and says what it waits for: it starts by itself.

Kueue puts a run into a queue also where no setting says so. Credentials that may not read Kueue's
Workloads then see less, and `pulumi up` goes on without what they do not see.
"""

import time

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import unless_forbidden
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.objects import Json, label
from infra.kube.queues.kueue import is_stopped, kueue_workload
from infra.kube.queues.queue_look import out_of_queue, waiting
from infra.kube.queues.queue_place import InQueue, ignores_places
from infra.kube.queues.unqueued_look import held_without_queue
from infra.kube.record import parse_record, record_path
from infra.kube.say import say
from infra.kube.waiting import Patience, wait_for
from infra.kube.workload import Workload, is_suspended
from infra.names import QUEUE_LABEL

# In the lines about a run that waits (`ends_well`) and about one that does not; the output
# `queuePlace` finds them by these. Kueue may have put a run into a queue that names none.
WAITS, HAS_PLACE = " waits in queue ", " has its place in queue "
STOPPED = " was stopped by ./disttrain stop"
QUEUE_SECONDS = 20.0  # Kueue decides within a second where there is quota


class SuspendedError(TaskError):
    """Somebody else than the run's own user has suspended it; the text says how it goes on."""


def wait_in_queue(
    job: Job, api: Api, workload: Workload, path: str, suspend: Json, limit: int
) -> bool:
    """Whether the run has its place, or is in no queue; False: `up` may end, and it was said why:
    the run waits in its queue, or its user has stopped it.

    Args:
        job: of the task that waits.
        api: the cluster.
        workload: of the run.
        path: of the workload.
        suspend: the suspend patch of its kind.
        limit: seconds to wait for the place; 0: to see that it is not given now.

    Raises:
        SuspendedError: somebody else has suspended the run.
        TaskError: the run asks for more than its queue ever has, or the limit is reached.
    """
    patience = Patience(QUEUE_SECONDS, time.monotonic)
    waits, notes, stopped = list[InQueue](), list[str](), list[str]()

    def ask() -> str:
        waits.clear()
        item = api.get(path)
        if item is None:
            return ""  # the wait for the pods says so
        if seen_stopped(api, job.namespace, item, suspend):
            stopped.append(stopped_text(job, api, workload, item))
            return ""
        place = held_back(api, job.namespace, item, suspend)
        if place is None:
            notes[:] = ignored(api, job.namespace, item, workload)
            if (queue := label(item, QUEUE_LABEL)) and not notes:
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
    """Whether somebody has stopped a run; False too where that may not be read: it waits then."""
    return unless_forbidden(lambda: is_stopped(api, namespace, item, suspend), lambda _: False)


def held_back(api: Api, namespace: str, item: Json, suspend: Json) -> InQueue | None:
    """What a run waits for in its queue; None where it has its place, or is in no queue."""
    if not is_suspended(item, suspend):
        return None
    queue = label(item, QUEUE_LABEL)
    words = f"in queue {queue}; what it waits for may not be read: "
    return unless_forbidden(
        lambda: waiting(api, namespace, item),
        lambda error: InQueue(queue, None, f"{words}{error}"),
    )


def ignored(api: Api, namespace: str, item: Json, workload: Workload) -> list[str]:
    """What Kueue does not do for a run that is not held back, though it should.

    Kueue makes a Workload for each object that it looks at, before it gives it its place.
    """
    queue = label(item, QUEUE_LABEL)
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
    if ignores_places(own):
        return [
            f"{workload} starts on any machines, because Kueue ignores the setting placement: ask "
            "the administrator of Kueue to turn on its feature gate TopologyAwareScheduling (by "
            "default it is on since Kueue 0.14)"
        ]
    return []


def ends_well(workload: Workload, place: InQueue) -> str:
    """What `pulumi up` says at its end of a run that waits."""
    if place.since is None:  # Kueue has not looked at it, and perhaps never does
        return f"{workload} waits {place.words}. ./disttrain status shows whether it has begun"
    return (
        f"{workload} waits {place.words}. It starts by itself; ./disttrain status shows when. "
        "(whenBusy: wait makes `pulumi up` wait for that)"
    )


def queue_place(said: str, queue: str) -> str:
    """What the output `queuePlace` says. Pure.

    Args:
        said: all that the wait for the training has printed.
        queue: LocalQueue of the run; empty: it names none.
    """
    marks = (WAITS, HAS_PLACE, *([STOPPED] if queue else []))
    lines = [line for line in said.splitlines() if any(mark in line for mark in marks)]
    if not queue and not lines:
        return "the run is in no queue of Kueue"
    told = lines[-1] if lines else f"the run had its place in queue {queue}"
    return f"when pulumi up ended: {told}"


def stopped_text(job: Job, api: Api, workload: Workload, item: Json) -> str:
    """What `pulumi up` says at its end of a run that its user has stopped by ./disttrain stop.

    Args:
        job: of the task that waits.
        api: the cluster.
        workload: of the run.
        item: the same, as it is on the cluster: suspended.

    Raises:
        SuspendedError: somebody else has suspended it.
    """
    record = api.get(record_path(job.namespace, job.owner))
    by_stack = parse_record(record).suspended_by if record else ""
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

"""Says in the Pulumi program what a run waits for in its queue, where no task says it.

An unchanged `pulumi up` repeats no task, and the output `queuePlace` would keep what the last task
has said. So the program itself asks, with each preview and each update.
"""

from infra.kube import names
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.api_server.read_only import read_only_api
from infra.kube.objects import label
from infra.kube.queues.await_queue import HAS_PLACE, held_back, seen_stopped
from infra.kube.queues.kueue import queue_of
from infra.kube.record import read_record
from infra.kube.runs.workload_now import workload_now
from infra.kube.workload import true_condition

SECONDS = 3.0


def queue_place_now(access: Access, namespace: str, owner: str, revision: str) -> str:
    """One sentence about the place of a run in its queue.

    The text is empty if the run is in no queue, is stopped or over, or is not the one of these
    settings, because then the task `await` speaks. It is also empty if the cluster could not be
    asked. This function raises no error.

    Args:
        access: how the cluster is reached.
        namespace: the namespace of the run.
        owner: the owner id of the stack, a uuid.
        revision: the revision of the run with the present settings.
    """
    try:
        with read_only_api(access, SECONDS) as api:
            return _place(api, namespace, owner, revision)
    except Exception:  # No error here may end a preview.
        return ""


def _place(api: Api, namespace: str, owner: str, revision: str) -> str:
    record = read_record(api, namespace, owner)
    if record is None or record.revision != revision:
        return ""
    found = workload_now(api, namespace, record.workload)
    if found is None or label(found, names.OWNER_LABEL) != owner:
        return ""
    queue = queue_of(found)
    if not queue or true_condition(found, list(record.over)):
        return ""
    if seen_stopped(api, namespace, found, record.suspend):
        return ""
    place = held_back(api, namespace, found, record.suspend)
    if place is None:
        return f"{record.workload}{HAS_PLACE}{queue}"
    if place.never:
        return f"{record.workload} waits {place.words}, and can never start. {place.remedy}"
    if place.since is None:  # Kueue has not looked at the run, and perhaps never will.
        return f"{record.workload} waits {place.words}. ./disttrain status shows whether it starts"
    return f"{record.workload} waits {place.words}. ./disttrain status shows when it starts"

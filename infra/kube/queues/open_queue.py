"""Task `open-queue`: waits until Kueue accepts runs in the platform's queue.

Its `delete` removes the queue once no run is left in it.
"""

from infra.kube.api_server.api import Api
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.objects import Json, condition
from infra.kube.queues.kueue import collection, served_version
from infra.kube.queues.queue_members import named, standing_in
from infra.kube.queues.queue_removal import remove
from infra.kube.waiting import wait_for

OPEN_SECONDS = 60
EMPTY_SECONDS = 60  # a run of this stack may still be ending


def create(job: Job, api: Api) -> None:
    """Wait until Kueue says that the LocalQueue and its ClusterQueue are active.

    Raises:
        TaskError: they do not become active in time. The text has Kueue's reason.
    """

    def ask() -> str:
        version = served_version(api)
        local = f"{collection(version, 'localqueues', job.namespace)}/{queue}"
        whole = f"{collection(version, 'clusterqueues')}/{job.text('cluster_queue')}"
        said = [why_closed(api.get(path) or {}) for path in (local, whole)]
        if any("stopped" in words for words in said):
            return ""  # Somebody has stopped the queue on purpose, and will open it again.
        return "; ".join(words for words in said if words)

    queue = job.text("queue")
    wait_for(f"queue {queue} to be active", ask, OPEN_SECONDS)


def why_closed(item: Json) -> str:
    """Why a LocalQueue or a ClusterQueue accepts no runs, as Kueue says; empty: it does.

    This function is pure.
    """
    active = condition(item, "Active")
    if not active:
        return "Kueue has not taken it up: does its controller run? (kubectl get pods -A)"
    if active.get("status") == "True":
        return ""
    return str(active.get("message") or active.get("reason"))


def delete(job: Job, api: Api) -> None:
    """Wait until nothing is in the queue, and delete it.

    Raises:
        TaskError: something stays in the queue, so the queue is left as it is; or the queue is not
            deleted in time. The text says what keeps it.
        UnreachableError: the cluster does not answer.
    """
    left: list[str] = []

    def ask() -> str:
        inside = standing_in(api, job.namespace, job.text("cluster_queue"))
        left[:] = [named(inside)] if inside else []
        return f"{left[0]} is in it" if left else ""

    ask()  # If the cluster is gone, this raises UnreachableError, and nothing is waited for.
    try:
        wait_for(f"queue {job.text('queue')} to be empty", ask, EMPTY_SECONDS)
    except TaskError:
        raise TaskError(in_the_way(job.text("queue"), job.namespace, "".join(left))) from None
    remove(job, api)


def in_the_way(queue: str, namespace: str, work: str) -> str:
    """The message about work that keeps a queue from being deleted. This function is pure."""
    return (
        f"{work} is in queue {queue} of namespace {namespace}, which is deleted with this "
        "platform. The queue is left as it is. First wait until that has ended, delete it, or "
        "remove it from the queue (for a stack of yours: pulumi config rm queue, pulumi up)"
    )

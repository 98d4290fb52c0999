"""Task `open-queue`: waits until Kueue takes runs into the platform's queue, and later takes the
queue away once none is left in it."""

from infra.kube.api_server.api import Api
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.objects import Json, condition
from infra.kube.queues.kueue import collection, served_version
from infra.kube.queues.queue_members import named, standing_in
from infra.kube.queues.queue_removal import remove
from infra.kube.waiting import wait_for

OPEN_SECONDS = 60
EMPTY_SECONDS = 60  # a run of this stack has just been told to end


def create(job: Job, api: Api) -> None:
    """Wait for the condition Active of the LocalQueue, which Kueue's controller writes.

    Raises:
        TaskError: it does not become active; names Kueue's reason.
    """

    def ask() -> str:
        version = served_version(api)
        local = f"{collection(version, 'localqueues', job.namespace)}/{queue}"
        whole = f"{collection(version, 'clusterqueues')}/{job.text('cluster_queue')}"
        said = [why_closed(api.get(path) or {}) for path in (local, whole)]
        if any("stopped" in words for words in said):
            return ""  # by somebody, who opens it again
        return "; ".join(words for words in said if words)

    queue = job.text("queue")
    wait_for(f"queue {queue} to be active", ask, OPEN_SECONDS)


def why_closed(item: Json) -> str:
    """Why a LocalQueue or a ClusterQueue takes no runs, in Kueue's words; empty: it does. Pure."""
    active = condition(item, "Active")
    if not active:
        return "Kueue has not taken it up: does its controller run? (kubectl get pods -A)"
    if active.get("status") == "True":
        return ""
    return str(active.get("message") or active.get("reason"))


def delete(job: Job, api: Api) -> None:
    """Wait until nothing is in the queue, and take it away.

    Raises:
        TaskError: something does, and names it: the queue is left as it is; or it does not go.
        UnreachableError: the cluster does not answer.
    """
    left: list[str] = []

    def ask() -> str:
        inside = standing_in(api, job.namespace, job.text("cluster_queue"))
        left[:] = [named(inside)] if inside else []
        return f"{left[0]} is in it" if left else ""

    ask()  # a cluster that is gone is not waited for
    try:
        wait_for(f"queue {job.text('queue')} to be empty", ask, EMPTY_SECONDS)
    except TaskError:
        raise TaskError(in_the_way(job.text("queue"), job.namespace, "".join(left))) from None
    remove(job, api)


def in_the_way(queue: str, namespace: str, work: str) -> str:
    """The words for work that keeps a queue from being taken away. Pure."""
    return (
        f"{work} is in queue {queue} of namespace {namespace}, which is deleted with this "
        "platform. The queue is left as it is. First wait until that has ended, delete it, or "
        "remove it from the queue (for a stack of yours: pulumi config rm queue, pulumi up)"
    )

"""Deletes the objects of a platform's own queue, even if Kueue itself is already gone.

The engine would wait ten minutes for an object that keeps a finalizer of Kueue, and then fail. So a
task deletes these objects before the engine does.
"""

import time

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, TaskError, UnreachableError
from infra.kube.job import Job
from infra.kube.objects import Json, is_ending, label, name_of, part
from infra.kube.queues.kueue import GROUP, collection, served_version
from infra.kube.queues.queue_members import named, standing_in
from infra.kube.say import say
from infra.kube.waiting import STUCK_SECONDS, Patience, wait_for

END_SECONDS = 120
PATIENCE_SECONDS = 5.0


def queue_paths(job: Job, api: Api) -> list[str]:
    """The paths of the LocalQueue, the ClusterQueue, the flavor and the topology of the job.

    They are in the order of deletion and in the version that the cluster serves now. The list is
    empty if Kueue is gone.
    """
    version = served_version(api)
    if not version:
        return []
    queue, cluster_queue = job.text("queue"), job.text("cluster_queue")
    topology = job.fields.get("topology")
    return [
        f"{collection(version, 'localqueues', job.namespace)}/{queue}",
        f"{collection(version, 'clusterqueues')}/{cluster_queue}",
        f"{collection(version, 'resourceflavors')}/{flavor_of(job)}",
        *([f"{collection(version, 'topologies')}/{topology}"] if topology else []),
    ]


def flavor_of(job: Job) -> str:
    """The name of the queue's flavor: the name of its topology, or else of its ClusterQueue."""
    return str(job.fields.get("topology") or job.text("cluster_queue"))


def remove(job: Job, api: Api) -> None:
    """Delete the objects of the queue that are ours, and wait after each until it is gone.

    Raises:
        TaskError: an object is not deleted in time. The text says what keeps it.
    """
    for path in queue_paths(job, api):
        item = api.get(path)
        if item is not None and label(item, names.OWNER_LABEL) == job.owner:
            api.delete(path, {})
            see_it_go(job, api, path)


def see_it_go(job: Job, api: Api, path: str) -> None:
    """Wait until an object is gone, if it is ours and is being deleted; otherwise do nothing.

    Raises:
        TaskError: the object is not gone in time. The text says what keeps it.
    """
    patience = Patience(STUCK_SECONDS, time.monotonic)

    def ask() -> str:
        item = api.get(path)
        if item is None or label(item, names.OWNER_LABEL) != job.owner or not is_ending(item):
            return ""
        if patience.is_over("it is ending"):
            _let_go(job, api, path, item)
        return "it is ending"

    wait_for(f"{'/'.join(path.split('/')[-2:])} to be gone", ask, END_SECONDS)


def _let_go(job: Job, api: Api, path: str, item: Json) -> None:
    """Remove Kueue's finalizers from an object that nothing uses.

    Kueue's controller does so within a second. If the controller is gone, nobody else does it.

    Raises:
        TaskError: something is in the queue; the object has only finalizers of others; or Kueue's
            webhook is still there without its controller, so that every change is refused.
    """
    held = list[str](part(item, "metadata").get("finalizers") or [])
    others = [each for each in held if not each.startswith(f"{GROUP}/")]
    inside = standing_in(api, job.namespace, job.text("cluster_queue"))
    if inside or held == others:
        raise TaskError(
            f"queues: {name_of(item)} cannot go: it is held by {named(inside) or held}. End that, "
            "and run the command again"
        )
    say(f"Kueue's controller does not let {name_of(item)} go, and nothing uses it: it is freed")
    api.patience_seconds = PATIENCE_SECONDS
    try:
        api.patch(path, {"metadata": {"finalizers": others}})
    except (ApiError, UnreachableError) as refused:
        raise TaskError(
            f"queues: {name_of(item)} is held by {', '.join(held)}, which Kueue's controller takes "
            f"off, and that does not answer ({refused}). Start it again, or take Kueue away with "
            "its webhooks, and run the command again"
        ) from None

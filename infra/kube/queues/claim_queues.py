"""Task `claim-queues`: refuses to take over or change objects of Kueue that others need.

It refuses objects that somebody else has made, and another topology of a queue in which runs have
their places.
"""

from infra.kube.api_server.api import Api
from infra.kube.errors import TaskError
from infra.kube.foreign import belongs, is_foreign
from infra.kube.job import Job
from infra.kube.objects import Json, name_of
from infra.kube.queues.kueue import collection, served_version
from infra.kube.queues.queue_members import has_place, named, standing_in
from infra.kube.queues.queue_removal import flavor_of, queue_paths, see_it_go
from infra.kube.queues.topology_findings import flavors


def create(job: Job, api: Api) -> None:
    """Check each object that is to be made, and wait for those of ours that are being deleted.

    Raises:
        TaskError: an object exists that does not belong to this stack; the topology of the queue is
            to change while something has its place by the former one; or a deletion takes too long.
    """
    queue = queue_paths(job, api)
    classes = collection(served_version(api), "workloadpriorityclasses")
    for path in (*queue, *(f"{classes}/{name}" for name in job.texts("priorities"))):
        item = api.get(path)
        if item is not None and is_foreign(item, job.owner):
            refuse(item, path)
    _check_change(job, api)
    for path in queue:
        see_it_go(job, api, path)


def _check_change(job: Job, api: Api) -> None:
    """Refuse another topology while runs have places in the queue.

    Another topology means another flavor. Kueue forgets what runs use of a flavor that their queue
    no longer has.
    """
    name = job.text("cluster_queue")
    item = api.get(f"{collection(served_version(api), 'clusterqueues')}/{name}")
    if item is None or flavor_of(job) in flavors(item):
        return
    running = [work for work in standing_in(api, job.namespace, name) if has_place(work)]
    if running:
        raise TaskError(
            f"queues.topology: it cannot change now: {named(running)} has its place by the one of "
            f"before, and nothing was changed. Let that end or stop it (of a stack: ./disttrain "
            "stop --stack NAME, which its next `pulumi up` takes back), and run `pulumi up` again"
        )


def refuse(item: Json, path: str) -> None:
    """Raise TaskError, because the object belongs to somebody else. This function is pure."""
    kind = path.split("/")[-2]
    is_class = kind == "workloadpriorityclasses"
    way_out = (
        f"Remove it here (pulumi config rm --path queues.priorities.{name_of(item)}): a run's "
        "queuePriority may name it all the same"
        if is_class
        else "Set another queues.name, or a run's queue without queues where it may use that one"
    )
    raise TaskError(
        f"queues: {kind}/{name_of(item)} exists on the cluster and {belongs(item)}, so it is left "
        f"as it is. {way_out}"
    )

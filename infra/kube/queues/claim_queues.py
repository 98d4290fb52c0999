"""Task `claim-queues`: refuses Kueue's objects that somebody else has made, and another topology of
a queue in which runs have their places."""

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.objects import Json, label, name_of
from infra.kube.queues.kueue import collection, served_version
from infra.kube.queues.queue_members import has_place, named, standing_in
from infra.kube.queues.queue_removal import flavor_of, queue_paths, see_it_go
from infra.kube.queues.topology_look import flavors


def create(job: Job, api: Api) -> None:
    """Look at each object that is going to be made, and wait for those of ours that are ending.

    Raises:
        TaskError: one exists and does not carry our owner's label, or the queue's topology is to
            change while something runs by the one of before.
    """
    queue = queue_paths(job, api)
    classes = collection(served_version(api), "workloadpriorityclasses")
    for path in (*queue, *(f"{classes}/{name}" for name in job.texts("priorities"))):
        item = api.get(path)
        if item is not None and label(item, names.OWNER_LABEL) != job.owner:
            refuse(item, path)
    _look_at_change(job, api)
    for path in queue:
        see_it_go(job, api, path)


def _look_at_change(job: Job, api: Api) -> None:
    """Kueue forgets what a run takes of a flavor that its queue has no more."""
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


def delete(job: Job, api: Api) -> None:
    """Nothing of this stays behind."""
    del job, api


def refuse(item: Json, path: str) -> None:
    """Raises TaskError: an object of this name is somebody else's. Pure."""
    kind = path.split("/")[-2]
    stack = label(item, names.STACK_LABEL)
    whose = f"belongs to stack {stack} of another state" if stack else "was not made by this stack"
    is_class = kind == "workloadpriorityclasses"
    way_out = (
        f"Remove it here (pulumi config rm --path queues.priorities.{name_of(item)}): a run's "
        "queuePriority may name it all the same"
        if is_class
        else "Set another queues.name, or a run's queue without queues where it may use that one"
    )
    raise TaskError(
        f"queues: {kind}/{name_of(item)} exists on the cluster and {whose}, so it is left as it "
        f"is. {way_out}"
    )

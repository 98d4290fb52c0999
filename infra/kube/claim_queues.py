"""Task `claim-queues`: refuses Kueue's objects that somebody else has made."""

from infra.kube import names
from infra.kube.api import Api
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.kueue import collection, served_version
from infra.kube.objects import Json, label, name_of
from infra.kube.queue_removal import queue_paths, see_it_go


def create(job: Job, api: Api) -> None:
    """Look at each object that is going to be made, and wait for those of ours that are ending.

    Raises:
        TaskError: one exists and does not carry our owner's label.
    """
    queue = queue_paths(job, api)
    classes = collection(served_version(api), "workloadpriorityclasses")
    for path in (*queue, *(f"{classes}/{name}" for name in job.texts("priorities"))):
        item = api.get(path)
        if item is not None and label(item, names.OWNER_LABEL) != job.owner:
            refuse(item, path)
    for path in queue:
        see_it_go(job, api, path)


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

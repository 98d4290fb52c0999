"""Task `claim-names`: refuses to take over objects of others that have the names of a platform's.

The engine applies objects on the server's side. An object of the same name that somebody else has
made would silently be changed by that, and `pulumi destroy` would delete it.
"""

from infra.kube.api_server.api import Api
from infra.kube.errors import TaskError
from infra.kube.foreign import belongs, is_foreign
from infra.kube.job import Job


def create(job: Job, api: Api) -> None:
    """Look for an object at each of the job's `paths`.

    Raises:
        TaskError: an object is there that does not belong to this stack.
    """
    for path in job.texts("paths"):
        item = api.get(path)
        if item is not None and is_foreign(item, job.owner):
            raise TaskError(
                f"namespace: {job.namespace!r} cannot be used: {'/'.join(path.split('/')[-2:])} "
                f"exists on the cluster and {belongs(item)}. This stack needs an object of "
                "that name, which `pulumi up` would change and `pulumi destroy` would delete, so "
                "nothing was made. Set another namespace: pulumi config set namespace NAME"
            )


def delete(job: Job, api: Api) -> None:
    """Do nothing: the task has made nothing."""
    del job, api

"""Task `namespace-guard`: refuses to delete a namespace in which others have objects."""

from infra.kube.api_server.api import Api
from infra.kube.job import Job
from infra.kube.namespaces.own_namespace import parse_own_namespace
from infra.kube.namespaces.strangers import refuse_strangers


def create(job: Job, api: Api) -> None:
    """Nothing: it stands there for the day on which the namespace goes."""
    del job, api


def delete(job: Job, api: Api) -> None:
    """Look for others' objects in the namespaces of this stack that the job names.

    Raises:
        TaskError: there are some, or it cannot be seen whether there are; says what to do.
    """
    for given in job.mappings("own_namespaces"):
        refuse_strangers(api, parse_own_namespace(given), job.owner)

"""Task `namespace-guard`: refuses to delete a namespace in which others have objects."""

from infra.kube.api_server.api import Api
from infra.kube.job import Job
from infra.kube.namespaces.own_namespace import parse_own_namespace
from infra.kube.namespaces.strangers import refuse_strangers


def delete(job: Job, api: Api) -> None:
    """Look for objects of others in the job's `own_namespaces`.

    Raises:
        TaskError: there are some, or these credentials may not look for them. The text says what
            to do.
    """
    for given in job.mappings("own_namespaces"):
        refuse_strangers(api, parse_own_namespace(given), job.owner)

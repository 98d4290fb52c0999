"""Task `served`: refuses a cluster that does not serve what a setting needs."""

from infra.kube.api import Api
from infra.kube.errors import TaskError
from infra.kube.job import Job


def create(job: Job, api: Api) -> None:
    """Look for the API group and version `group_version`.

    Raises:
        TaskError: there is none; with the text `otherwise`, which names the setting and the ways
            out.
    """
    if api.get(f"/apis/{job.text('group_version')}") is None:
        raise TaskError(job.text("otherwise"))


def delete(job: Job, api: Api) -> None:
    """Nothing of this stays behind."""

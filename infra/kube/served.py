"""Task `served`: refuses a cluster that does not serve what a setting needs."""

from infra.kube.api import Api
from infra.kube.controllers import is_ours, parse_controller
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.objects import parts


def create(job: Job, api: Api) -> None:
    """Look for the API group and version `group_version`, and for `served_kind` in it.

    Where the job has a controller `leaves`, that is one that this stack would take away, and which
    would not serve the kind any longer.

    Raises:
        TaskError: it is not there, with the text `otherwise`; or this stack has installed what
            leaves, with the text `otherwise_leaves`. Both name the setting and the ways out.
    """
    leaves = job.mapping("leaves")
    if leaves and is_ours(api, parse_controller(leaves), job.owner):
        raise TaskError(job.text("otherwise_leaves"))
    if not serves(api, job.text("group_version"), job.text("served_kind")):
        raise TaskError(job.text("otherwise"))


def serves(api: Api, group_version: str, kind: str) -> bool:
    """Whether the cluster knows a kind. Others of its group may be there without it."""
    served = api.get(f"/apis/{group_version}")
    return served is not None and any(
        found.get("kind") == kind for found in parts(served, "resources")
    )


def delete(job: Job, api: Api) -> None:
    """Nothing of this stays behind."""

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
    wanted = (job.text("group_version"), job.text("served_kind"))
    if not serves(api, *wanted):
        raise TaskError(unserved(api, *wanted, job.text("otherwise")))


def serves(api: Api, group_version: str, kind: str) -> bool:
    """Whether the cluster knows a kind. Others of its group may be there without it."""
    served = api.get(f"/apis/{group_version}")
    return served is not None and any(
        found.get("kind") == kind for found in parts(served, "resources")
    )


def unserved(api: Api, group_version: str, kind: str, otherwise: str) -> str:
    """What is said of a cluster that does not serve a kind in this version.

    Args:
        api: the cluster.
        group_version: such as `jobset.x-k8s.io/v1alpha2`.
        kind: such as `JobSet`.
        otherwise: what is said where the cluster does not know the kind at all. It begins with
            the setting and its value, such as `topology: 'jobset' cannot be used: `.

    Returns:
        `otherwise`, or a sentence with the versions in which the cluster serves the kind instead.
    """
    group, _, version = group_version.rpartition("/")
    known = [str(each["version"]) for each in parts(api.get(f"/apis/{group}") or {}, "versions")]
    others = [each for each in known if serves(api, f"{group}/{each}", kind)]
    if not others:
        return otherwise
    setting, words, _ = otherwise.partition(" cannot be used: ")
    assert words, otherwise
    return (
        f"{setting}{words}the cluster serves {kind} of {group} as {', '.join(others)}, and this "
        f"program knows {version} alone. Install a version of the controller that serves "
        f"{group_version}; docs/clusters.md names those that were tried"
    )


def delete(job: Job, api: Api) -> None:
    """Nothing of this stays behind."""

"""Task `served`: refuses a cluster that does not serve what a setting needs."""

from infra.kube.api_server.api import Api
from infra.kube.controllers.controller import is_ours, parse_controller
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.objects import parts


def create(job: Job, api: Api) -> None:
    """Look for the API group and version `group_version`, and for `served_kind` in it.

    Where the job has a controller `leaves`, that is one that this stack would take away, and which
    would not serve the kind any longer.

    `setting` is what asks for it, with its value, such as `topology: 'jobset'`.

    Raises:
        TaskError: it is not there, for the reason `otherwise`; or this stack has installed what
            leaves, for the reason `otherwise_leaves`. Both name the ways out.
    """
    leaves = job.mapping("leaves")
    if leaves and is_ours(api, parse_controller(leaves), job.owner):
        raise TaskError(not_usable(job.text("setting"), job.text("otherwise_leaves")))
    wanted = (job.text("group_version"), job.text("served_kind"))
    if not serves(api, *wanted):
        raise TaskError(unserved(api, *wanted, job.text("setting"), job.text("otherwise")))


def serves(api: Api, group_version: str, kind: str) -> bool:
    """Whether the cluster knows a kind. Others of its group may be there without it."""
    served = api.get(f"/apis/{group_version}")
    return served is not None and any(
        found.get("kind") == kind for found in parts(served, "resources")
    )


def not_usable(setting: str, why: str) -> str:
    """What is said of a setting, such as `topology: 'jobset'`, and why it is refused."""
    return f"{setting} cannot be used: {why}"


def unserved(api: Api, group_version: str, kind: str, setting: str, otherwise: str) -> str:
    """What is said of a cluster that does not serve a kind in this version.

    Args:
        api: the cluster.
        group_version: such as `jobset.x-k8s.io/v1alpha2`.
        kind: such as `JobSet`.
        setting: what asks for it, with its value, such as `topology: 'jobset'`.
        otherwise: the reason where the cluster does not know the kind at all, and the ways out.

    Returns:
        What is said of the setting: `otherwise`, or the versions in which the cluster serves the
        kind instead.
    """
    group, _, version = group_version.rpartition("/")
    known = [str(each["version"]) for each in parts(api.get(f"/apis/{group}") or {}, "versions")]
    others = [each for each in known if serves(api, f"{group}/{each}", kind)]
    if not others:
        return not_usable(setting, otherwise)
    return not_usable(
        setting,
        f"the cluster serves {kind} of {group} as {', '.join(others)}, and this program only "
        f"knows {version}. Install a version of the controller that serves {group_version}; "
        "docs/clusters.md names those that were tried",
    )


def delete(job: Job, api: Api) -> None:
    """Nothing of this stays behind."""

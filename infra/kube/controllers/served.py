"""Task `served`: refuses a setting if the cluster does not know the kind that the setting needs."""

from infra.kube.api_server.api import Api
from infra.kube.controllers.controller import is_ours, parse_controller
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.objects import parts


def create(job: Job, api: Api) -> None:
    """Check that the cluster serves the kind `served_kind` in the API version `group_version`.

    The job's `setting` is the setting that needs the kind, with its value, such as
    `topology: 'jobset'`. If the job has a controller `leaves`, this `up` would remove that
    controller, and the kind with it.

    Raises:
        TaskError: the cluster does not serve the kind, for the reason `otherwise`; or this stack
            has installed the controller `leaves`, for the reason `otherwise_leaves`. Both reasons
            name the ways out.
    """
    leaves = job.mapping("leaves")
    if leaves and is_ours(api, parse_controller(leaves), job.owner):
        raise TaskError(not_usable(job.text("setting"), job.text("otherwise_leaves")))
    wanted = (job.text("group_version"), job.text("served_kind"))
    if not serves(api, *wanted):
        raise TaskError(unserved(api, *wanted, job.text("setting"), job.text("otherwise")))


def serves(api: Api, group_version: str, kind: str) -> bool:
    """Whether the cluster serves a kind. Other kinds of the group may be served without it."""
    served = api.get(f"/apis/{group_version}")
    return served is not None and any(
        found.get("kind") == kind for found in parts(served, "resources")
    )


def not_usable(setting: str, why: str) -> str:
    """The message about a setting, such as `topology: 'jobset'`, that is refused."""
    return f"{setting} cannot be used: {why}"


def unserved(api: Api, group_version: str, kind: str, setting: str, otherwise: str) -> str:
    """The message about a cluster that does not serve a kind in this version.

    Args:
        api: the cluster.
        group_version: the API version, such as `jobset.x-k8s.io/v1alpha2`.
        kind: the kind, such as `JobSet`.
        setting: the setting that needs the kind, with its value, such as `topology: 'jobset'`.
        otherwise: the reason and the ways out, if the cluster does not know the kind at all.

    Returns:
        The message with `otherwise`, or with the versions in which the cluster serves the kind.
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

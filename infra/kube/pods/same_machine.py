"""Task `same-machine`: refuses a cluster in which this machine is not a node."""

from contextlib import suppress
from pathlib import Path

from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, TaskError
from infra.kube.job import Job
from infra.kube.objects import Json, names_of, part
from infra.kube.paths import NODES
from infra.kube.say import say

# The kernel makes this random text at each start. The kubelet copies it into the node's status.
# https://www.kernel.org/doc/html/latest/admin-guide/sysctl/kernel.html#random
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def create(job: Job, api: Api) -> None:
    """Compare the boot id of this machine with those of the nodes.

    If one of these boot ids cannot be read and no other one matches, the task prints that it could
    not check this, and ends without an error.

    Raises:
        TaskError: each node has another boot id than this machine.
    """
    try:
        here = BOOT_ID.read_text().strip()
    except OSError as error:
        _not_checked(f"this system does not show when it was started ({error})")
        return
    try:
        nodes = api.list(NODES)
    except ApiError as reason:
        if reason.status != 403:
            raise
        _not_checked(f"these credentials may not read the cluster's nodes ({reason})")
        return
    refuse_others(nodes, here, job.access.kubeconfig_path)


def boot_id() -> str:
    """The boot id of this machine; empty: the system does not show it."""
    with suppress(OSError):
        return BOOT_ID.read_text().strip()
    return ""


def refuse_others(nodes: list[Json], here: str, kubeconfig: str) -> None:
    """Raise TaskError if no node can be this machine.

    Args:
        nodes: all nodes of the cluster.
        here: the boot id of this machine.
        kubeconfig: the path of the kubeconfig of the cluster, for the message.
    """
    shown = {str(part(node, "status", "nodeInfo").get("bootID") or "") for node in nodes}
    if here in shown:
        return
    if "" in shown or not nodes:
        _not_checked("the cluster has a node that does not show its boot id, or no node")
        return
    raise TaskError(
        f"kubeconfig: {kubeconfig!r} cannot be used with host: local: the nodes of its cluster "
        f"({names_of(nodes)}) are other machines than this one, and the data folder and the image "
        "would be made here, where no pod finds them. Nothing was made. Run pulumi on a node of "
        "that cluster; or let k3s be installed on another machine: cluster: k3s and host: ssh; or "
        "choose a storage and an imageDelivery that need no folder and no containerd of a node "
        "(docs/extending.md)"
    )


def _not_checked(reason: str) -> None:
    say(
        f"it was not checked that this machine is the cluster's node: {reason}. If it is none, "
        "pods will find neither the data folder nor the image, which are made on this machine"
    )

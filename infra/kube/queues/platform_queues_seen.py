"""Reads what has to be known of a cluster before a queue of Kueue is made in it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import objects_at
from infra.kube.api_server.read_only import read_only_api
from infra.kube.errors import TaskError
from infra.kube.objects import Json, name_of, part, parts
from infra.kube.paths import NODES
from infra.kube.quantity import amount
from infra.kube.queues.kueue import GROUP, VERSIONS, served_version
from infra.kube.queues.queue_findings import INSTALL
from infra.kube.queues.topology_findings import no_topology_served, topology_nodes
from infra.names import GPU_RESOURCE

CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
KEEPS_AWAY = ("NoSchedule", "NoExecute")
GI, MI = 2**30, 2**20
UNSEEN = (
    "queues.topology: these credentials may not read the nodes, so it was not checked whether they "
    "have its labels"
)


@dataclass(frozen=True)
class QueuesSeen:
    """What was read of a cluster with Kueue.

    Args:
        version: the version of Kueue's objects, such as `v1beta2`.
        offered: what all nodes together offer, as Kubernetes' quantities by resource. A resource
            that no node offers is left out.
        was_asked: False: the cluster could not be asked, so all other fields are guesses.
        notes: what the user should know, each as a sentence.
        gpus_come: whether a further machine of the platform offers no GPUs yet.
    """

    version: str = VERSIONS[0]
    offered: Mapping[str, str] = field(default_factory=dict[str, str])
    was_asked: bool = True
    notes: Sequence[str] = ()
    gpus_come: bool = False


@dataclass(frozen=True)
class QueuesWanted:
    """The queue that is to be made.

    Args:
        name: the name of the LocalQueue.
        resources: the resources for which the queue's quota is what the nodes offer.
        levels: the node labels that are the levels of its topology; empty: it has no topology.
        grows: whether the cluster makes nodes when pods need them. Then the present nodes do not
            show how much there will be.
        comes: whether the platform installs Kueue, if it is not there yet.
        machines: the names of the further machines of the platform that are not lost.
    """

    name: str
    resources: Sequence[str]
    levels: Sequence[str]
    grows: bool = False
    comes: bool = False
    machines: Collection[str] = ()


def read_queues(access: Access, seconds: float, wanted: QueuesWanted) -> QueuesSeen:
    """Read the version of Kueue, what the nodes offer, and whether they have the topology's labels.

    Args:
        access: how the cluster is reached.
        seconds: the longest wait for an answer.
        wanted: the queue that is to be made.

    Raises:
        TaskError: no such queue can be made. The text has the reason and the way out.
        ApiError, UnreachableError, OSError, ValueError: the cluster cannot be asked.
    """
    with read_only_api(access, seconds) as api:
        version = _version(api, wanted)
        resources = () if wanted.grows else wanted.resources
        if not resources and (wanted.grows or not wanted.levels):
            return QueuesSeen(version)
        nodes = objects_at(api, NODES)
    if nodes is not None:
        return _of_nodes(version, nodes, resources, wanted)
    if not resources:
        return QueuesSeen(version, notes=[UNSEEN])
    keys = " and ".join(f"queues.quota.{resource}" for resource in resources)
    raise TaskError(
        f"{_cannot(wanted)}these credentials may not read the nodes, so it is not known how much "
        f"they offer. Set {keys}"
    )


def _version(api: Api, wanted: QueuesWanted) -> str:
    """The version of Kueue's objects, or the newest known one if this stack installs Kueue.

    Raises:
        TaskError: there is no Kueue, or it cannot have such a queue.
    """
    try:
        version = served_version(api)
    except TaskError as reason:
        raise TaskError(f"{_cannot(wanted)}{reason}") from None
    if not version and not wanted.comes:
        raise TaskError(
            f"{_cannot(wanted)}the cluster serves no {GROUP}, so Kueue is not there. Let this "
            f"stack install it (controllers: [kueue]), install it yourself ({INSTALL}), or remove "
            "the setting: pulumi config rm queues"
        )
    if version and (problem := no_topology_served(api, version, wanted.levels)):
        raise TaskError(problem)
    return version or VERSIONS[0]


def _cannot(wanted: QueuesWanted) -> str:
    """The beginning of the message that no queue can be made."""
    return f"queues.name: {wanted.name!r} cannot be used: "


def _of_nodes(
    version: str, nodes: Sequence[Json], resources: Sequence[str], wanted: QueuesWanted
) -> QueuesSeen:
    """What the nodes say about the queue. This function is pure.

    Raises TaskError: no node has all labels of the topology.
    """
    inside = topology_nodes(usable(nodes), wanted.levels)
    if inside.problem:
        raise TaskError(inside.problem)
    return QueuesSeen(
        version,
        offered_in_all(inside.nodes, resources),
        notes=[inside.note] if inside.note else [],
        gpus_come=gpus_come(wanted.machines, nodes, inside.nodes),
    )


def gpus_come(machines: Collection[str], nodes: Sequence[Json], counted: Sequence[Json]) -> bool:
    """Whether a further machine of the platform offers no GPUs yet. This function is pure.

    A machine that has just joined offers its GPUs only when its driver and its device plugin run.

    Args:
        machines: the names of the further machines that are not lost.
        nodes: all nodes of the cluster.
        counted: the nodes that count for the quota of the queue.
    """
    there = {name_of(node) for node in nodes}
    without = {name_of(node) for node in counted if not offered_in_all([node], (GPU_RESOURCE,))}
    return any(name in without or name not in there for name in machines)


def usable(nodes: Sequence[Json]) -> list[Json]:
    """The nodes without the control planes that accept no pods. This function is pure.

    Cordoned nodes and nodes that are not Ready are included, because that may change soon.
    """
    return [node for node in nodes if not _is_closed_control_plane(node)]


def offered_in_all(nodes: Sequence[Json], resources: Sequence[str]) -> dict[str, str]:
    """What all nodes together offer of each resource to pods, as Kubernetes' quantities.

    This function is pure.

    Memory is rounded down to whole GiB (below one GiB, to whole MiB), because the memory of a node
    changes slightly with its kernel.
    """
    found = dict[str, str]()
    for resource in resources:
        offers = (part(node, "status", "allocatable").get(resource) for node in nodes)
        total = sum(amount(str(offer)) for offer in offers if offer)
        if written := _written(resource, total):
            found[resource] = written
    return found


def _is_closed_control_plane(node: Json) -> bool:
    taints = parts(part(node, "spec"), "taints")
    return any(
        taint.get("key") in CONTROL_PLANE and taint.get("effect") in KEEPS_AWAY for taint in taints
    )


def _written(resource: str, total: float) -> str:
    """An amount as a quantity of Kubernetes; empty: there is nothing of the resource."""
    if resource == "memory":
        unit, letters = (GI, "Gi") if total >= GI else (MI, "Mi")
        return f"{int(total // unit)}{letters}" if total >= MI else ""
    thousandths = round(total * 1000)
    if thousandths % 1000:
        return f"{thousandths}m"
    return str(thousandths // 1000) if thousandths else ""

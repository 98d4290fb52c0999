"""What has to be known of a cluster before a queue of Kueue is made in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import objects_at
from infra.kube.api_server.quick_look import quick_look
from infra.kube.errors import TaskError
from infra.kube.objects import Json, part, parts
from infra.kube.paths import NODES
from infra.kube.quantity import amount
from infra.kube.queues.kueue import GROUP, VERSIONS, served_version
from infra.kube.queues.queue_look import INSTALL
from infra.kube.queues.topology_look import no_topology_served, places

CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
KEEPS_AWAY = ("NoSchedule", "NoExecute")
GI, MI = 2**30, 2**20
UNSEEN = (
    "queues.topology: these credentials may not read the nodes, so it was not checked whether they "
    "have its labels"
)


@dataclass(frozen=True)
class QueuesSeen:
    """A cluster with Kueue.

    Args:
        version: of Kueue's objects, such as `v1beta2`.
        offered: amounts by resource, as Kubernetes writes them, of the nodes together. A resource
            that no node offers is not among them.
        was_asked: False: the cluster was not there to be asked, so the rest is a guess.
        notes: what is worth knowing, each as a sentence.
    """

    version: str = VERSIONS[0]
    offered: Mapping[str, str] = field(default_factory=dict[str, str])
    was_asked: bool = True
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class QueuesWanted:
    """The queue that is to be made.

    Args:
        name: of the LocalQueue.
        resources: of which the nodes have to be asked what they offer.
        levels: of its topology, labels of nodes; none: it has none.
        grows: nodes are made when pods need them, so today's nodes decide nothing.
        comes: the platform installs Kueue, where it is not there yet.
    """

    name: str
    resources: Sequence[str] = ()
    levels: Sequence[str] = ()
    grows: bool = False
    comes: bool = False


def look_at_queues(access: Access, seconds: float, wanted: QueuesWanted) -> QueuesSeen:
    """Ask a cluster for the version of Kueue, and its nodes for what they offer and for the labels
    of the topology.

    With `comes` the platform installs Kueue, where it is not there yet.

    Raises:
        TaskError: no queue can be made in it; names the reason and the way out.
        ApiError, UnreachableError, OSError, ValueError: it cannot be asked.
    """
    with quick_look(access, seconds) as api:
        version = _version(api, wanted)
        resources = () if wanted.grows else wanted.resources
        if not resources and (wanted.grows or not wanted.levels):
            return QueuesSeen(version)
        nodes = objects_at(api, NODES)
    if nodes is not None:
        return _of_nodes(version, usable(nodes), resources, wanted.levels)
    if not resources:
        return QueuesSeen(version, notes=[UNSEEN])
    keys = " and ".join(f"queues.quota.{resource}" for resource in resources)
    raise TaskError(
        f"{_cannot(wanted)}these credentials may not read the nodes, so it is not known how much "
        f"they offer. Set {keys}"
    )


def _version(api: Api, wanted: QueuesWanted) -> str:
    """The version of Kueue's objects, or the usual one where Kueue comes with this stack.

    Raises:
        TaskError: there is no Kueue, or none that knows what is wanted.
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
    """The begin of what is said where no queue can be made."""
    return f"queues.name: {wanted.name!r} cannot be used: "


def _of_nodes(
    version: str, nodes: Sequence[Json], resources: Sequence[str], levels: Sequence[str]
) -> QueuesSeen:
    """Raises TaskError where no node has a label of the topology. Pure."""
    inside = places(nodes, levels)
    if inside.problem:
        raise TaskError(inside.problem)
    notes = [inside.note] if inside.note else []
    return QueuesSeen(version, offered_in_all(inside.nodes, resources), notes=notes)


def usable(nodes: Sequence[Json]) -> list[Json]:
    """Without the control planes that keep pods away. Cordons and nodes that are not ready pass,
    so these are among them. Pure."""
    return [node for node in nodes if not _is_closed_control_plane(node)]


def offered_in_all(nodes: Sequence[Json], resources: Sequence[str]) -> dict[str, str]:
    """What pods can have of each resource on all nodes together, as Kubernetes writes it. Pure.

    Bytes are rounded down to whole GiB, or MiB below one GiB: a node's memory changes by a little
    with its kernel.
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
    """Empty: there is none."""
    if resource == "memory":
        unit, letters = (GI, "Gi") if total >= GI else (MI, "Mi")
        return f"{int(total // unit)}{letters}" if total >= MI else ""
    thousandths = round(total * 1000)
    if thousandths % 1000:
        return f"{thousandths}m"
    return str(thousandths // 1000) if thousandths else ""

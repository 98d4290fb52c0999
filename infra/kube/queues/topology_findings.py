"""Checks the topology of a queue of Kueue: the labels that the nodes have and the queue knows."""

from collections.abc import Sequence
from dataclasses import dataclass

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings, object_at
from infra.kube.controllers.served import serves
from infra.kube.objects import Json, name_of, part, parts
from infra.kube.queues.kueue import GROUP, collection
from infra.kube.say import first_of

KIND = "Topology"
KEY = "queues.topology"
FIRST_KUEUE = "0.14"  # whose feature gate TopologyAwareScheduling is on by default
MOST_NAMES = 10


def no_topology_served(api: Api, version: str, levels: Sequence[str]) -> str:
    """Why a cluster with Kueue cannot have a topology; empty: it can."""
    if not levels or serves(api, f"{GROUP}/{version}", KIND):
        return ""
    return (
        f"{KEY}: {list(levels)} cannot be used: the cluster serves no {KIND} of {GROUP}/{version}, "
        f"so its Kueue is older than {FIRST_KUEUE}. Install a newer one, or remove the setting: "
        f"pulumi config rm --path {KEY}"
    )


@dataclass(frozen=True)
class TopologyNodes:
    """The nodes of a topology.

    Args:
        nodes: the nodes that have a label of each level. Other nodes do not belong to it.
        problem: why no run could ever start; empty: runs can start.
        note: which nodes are left out; empty: none is left out.
    """

    nodes: Sequence[Json]
    problem: str = ""
    note: str = ""


def topology_nodes(nodes: Sequence[Json], levels: Sequence[str]) -> TopologyNodes:
    """The nodes that belong to a topology of these levels. This function is pure.

    Args:
        nodes: the nodes that accept pods.
        levels: node labels, from the widest group of nodes to the machine; empty: all nodes belong
            to it.
    """
    inside = [node for node in nodes if not _missing(node, levels)]
    without = {
        level: sorted(name_of(node) for node in nodes if level in _missing(node, levels))
        for level in levels
    }
    if inside or not levels:
        left_out = sorted(name_of(node) for node in nodes if _missing(node, levels))
        return TopologyNodes(inside, note=_left_out(left_out, without) if left_out else "")
    if not nodes:
        return TopologyNodes(inside, f"{KEY}: the cluster has no node that takes pods")
    index, level = next(
        ((index, level) for index, level in enumerate(levels) if len(without[level]) == len(nodes)),
        (0, ""),
    )
    if level:
        problem = (
            f"{KEY}[{index}]: {level!r} cannot be used: no node has this label, so no run could "
            f"ever start. It is missing on {first_of(without[level], MOST_NAMES)}"
        )
    else:
        problem = (
            f"{KEY}: {list(levels)} cannot be used: no node has all of these labels, so no run "
            f"could ever start. {_each(without)}"
        )
    return TopologyNodes(
        inside, f"{problem}. Label each node: kubectl label node NAME {level or 'LABEL'}=PLACE"
    )


def _missing(node: Json, levels: Sequence[str]) -> list[str]:
    labels = part(node, "metadata", "labels")
    return [level for level in levels if level not in labels]


def _left_out(names: Sequence[str], without: dict[str, list[str]]) -> str:
    return (
        f"{KEY}: runs in the queue will not use {first_of(names, MOST_NAMES)}, and its quota does "
        f"not count them: {_each(without)}. To add a node: kubectl label node NAME LABEL=PLACE"
    )


def _each(without: dict[str, list[str]]) -> str:
    return "; ".join(
        f"{level} is missing on {first_of(names, MOST_NAMES)}"
        for level, names in without.items()
        if names
    )


def check_level(
    api: Api, version: str, queue: str, cluster_queue: Json, label: str, found: Findings
) -> None:
    """Note a problem if a queue cannot keep the pods of a run with `placement: one-place` together.

    All pods have to be on nodes with the same value of the label, and Kueue can see to that only if
    the label is a level of the queue's topology.

    Args:
        api: the cluster.
        version: the version of Kueue's objects.
        queue: the name of the LocalQueue.
        cluster_queue: the object of its ClusterQueue.
        label: the setting `placementLabel`.
        found: the problem is added to it.
    """
    levels = list[str]()
    for flavor in flavors(cluster_queue):
        known = _levels(api, version, flavor)
        if known is None:
            found.unseen(f"whether queue {queue} knows places by the label {label}")
            return
        levels += known
    if not levels:
        found.problems.append(
            f"placement: 'one-place' cannot be used: queue {queue} has no topology, so Kueue would "
            "never start the run. Set placement to packed, or ask the administrator of the "
            "cluster for a queue with a topology"
        )
    elif label not in levels:
        found.problems.append(
            f"placementLabel: {label!r} cannot be used: it is no level of the topology of queue "
            f"{queue}. Set one of {', '.join(dict.fromkeys(levels))}"
        )


def flavors(cluster_queue: Json) -> list[str]:
    """The names of the flavors of a ClusterQueue, each once."""
    found = [
        str(flavor.get("name"))
        for group in parts(part(cluster_queue, "spec"), "resourceGroups")
        for flavor in parts(group, "flavors")
    ]
    return list(dict.fromkeys(found))


def _levels(api: Api, version: str, flavor: str) -> list[str] | None:
    """The levels of a flavor's topology; empty: it has none; None: they may not be read."""
    item = object_at(api, f"{collection(version, 'resourceflavors')}/{flavor}")
    if item is None or item == "unseen":
        return None if item else []
    name = part(item, "spec").get("topologyName")
    topology = object_at(api, f"{collection(version, 'topologies')}/{name}") if name else None
    if topology is None or topology == "unseen":
        return None if topology else []
    return [str(level.get("nodeLabel")) for level in parts(part(topology, "spec"), "levels")]

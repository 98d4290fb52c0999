"""Finds the nodes that could hold a pod, by the rules of Kubernetes' scheduler.

Only those facts about a node count that do not change by themselves: its labels, its taints,
whether it is cordoned, and the total of what it offers. What other pods use at the moment and
whether a node is Ready do not count, because a run can wait until that changes. All functions are
pure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from infra.kube.objects import Json, label, name_of, part, parts
from infra.kube.quantity import amount
from infra.kube.say import first_of
from infra.kube.volumes.limited_volumes import LimitedVolume
from infra.names import EFA_RESOURCE, GPU_RESOURCE

# How the keys of taints begin or end that a node has for a while: Kubernetes, clouds, autoscalers
# and agents of the node add and remove them.
PASSES = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "karpenter.sh/",
    "ToBeDeletedByClusterAutoscaler",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
)
UNTIL_READY = "/agent-not-ready"
# For each resource, the setting that decides how much of it a pod asks for.
KEYS = {
    GPU_RESOURCE: "gpusPerPod",
    EFA_RESOURCE: "networkOptions.devices",
    "cpu": "cpuPerRank",
    "memory": "memoryPerRank",
}
# What makes nodes offer a resource.
INSTALL = {
    GPU_RESOURCE: "NVIDIA's device plugin (gpuOperator: true does)",
    EFA_RESOURCE: "Amazon's device plugin for EFA",
}
# Other names under which nodes offer GPUs, for which these pods cannot ask: the beginning of each
# name, and what to do.
OTHER_GPUS = (
    (
        "nvidia.com/mig-",
        f"With the MIG strategy single NVIDIA's device plugin names these {GPU_RESOURCE}",
    ),
    (
        f"{GPU_RESOURCE}.shared",
        f"With renameByDefault: false NVIDIA's device plugin names these {GPU_RESOURCE}",
    ),
    ("amd.com/gpu", "Only NVIDIA's GPUs can be used"),
    ("gpu.intel.com/", "Only NVIDIA's GPUs can be used"),
)
MOST_NAMES = 5


@dataclass(frozen=True)
class PodNeeds:
    """What each pod of a run asks of its node.

    Args:
        pods: how many pods there are at one time.
        requests: what a pod requests, as Kubernetes' quantities by resource, with its devices.
        limits: what a pod may use at most, in the same form.
        node_selector: labels that the node must have.
        tolerations: the pod's tolerations, in the form of Kubernetes.
        volumes: for each volume that cannot be used on every node, where it can be used.
    """

    pods: int
    requests: Mapping[str, str]
    node_selector: Mapping[str, str]
    tolerations: Sequence[Mapping[str, Any]]
    volumes: Sequence[LimitedVolume] = ()
    limits: Mapping[str, str] = field(default_factory=dict[str, str])


def pod_needs(spec: Json, pods: int, *, without: Sequence[str] = ()) -> PodNeeds:
    """Read from a pod's spec what it asks of its node.

    Args:
        spec: the spec of a pod with one container.
        pods: how many such pods there are at one time.
        without: resources that the nodes do not offer yet. They are left out of the requests.
    """
    (container,) = spec["containers"]
    resources = part(container, "resources")
    asked = {**part(resources, "limits"), **part(resources, "requests")}
    return PodNeeds(
        pods,
        {name: str(value) for name, value in asked.items() if name not in without},
        part(spec, "nodeSelector"),
        parts(spec, "tolerations"),
        limits={name: str(value) for name, value in part(resources, "limits").items()},
    )


def room_problem(nodes: Sequence[Json], needs: PodNeeds) -> str:
    """Why the nodes can never hold the pods, in one sentence; empty: they can."""
    problem = _problem(nodes, needs)
    fitting = nodes_with_room(needs, nodes, ()) if problem else []
    for volume in needs.volumes:
        if fitting and not any(map(volume.reaches, fitting)):
            return _elsewhere(fitting, volume)
    return problem


def _problem(nodes: Sequence[Json], needs: PodNeeds) -> str:
    left = [node for node in nodes if _has_labels(node, needs)]
    if not left:
        return _no_labels(nodes, needs)
    for volume in needs.volumes:
        if not any(map(volume.reaches, left)):
            return _elsewhere(left, volume)
    left = [node for node in left if all(volume.reaches(node) for volume in needs.volumes)]
    if not left:
        whats = " and ".join(volume.what for volume in needs.volumes)
        return f"storage: no node that these pods could use has both {whats}. Use one of them"
    tolerated = [node for node in left if not taints_against(node, needs.tolerations)]
    if not tolerated:
        return _not_tolerated(left, needs)
    usable = [node for node in tolerated if not part(node, "spec").get("unschedulable")]
    if not usable:
        return (
            f"every node that these pods could use is cordoned ({shown_names(tolerated)}). "
            "`kubectl uncordon NODE` opens one again"
        )
    for resource, wanted in needs.requests.items():
        if not any(_offers(node, resource) >= amount(wanted) for node in usable):
            return _too_large(usable, resource, wanted)
    fits = [min(_times(node, needs), needs.pods) for node in usable]
    if not any(fits):
        return (
            f"no node offers at once all that a pod asks for, {_all_of(needs)}; compared were "
            f"{shown_names(usable)}"
        )
    if sum(fits) < needs.pods:
        rooms = _each(usable, lambda node: f"{_times(node, needs)}")
        return (
            f"pods: {needs.pods} cannot be used: the nodes have room for {sum(fits)} of these pods "
            f"({rooms}), each of which asks for {_all_of(needs)}. Set at most {sum(fits)}, or "
            "smaller pods"
        )
    return ""


def usable_nodes(nodes: Sequence[Json], needs: PodNeeds) -> list[Json]:
    """The nodes on which the scheduler would place such a pod if they had room for it."""
    return [
        node
        for node in nodes
        if _has_labels(node, needs)
        and all(volume.reaches(node) for volume in needs.volumes)
        and not taints_against(node, needs.tolerations)
        and not part(node, "spec").get("unschedulable")
    ]


def nodes_with_room(
    needs: PodNeeds, nodes: Sequence[Json], volumes: Sequence[LimitedVolume]
) -> list[Json]:
    """The nodes on which at least one such pod would fit if no other pod were there.

    Args:
        needs: what the pod asks of its node. Its `volumes` are not used.
        nodes: the nodes of the cluster.
        volumes: where the pod's volumes can be used.
    """
    here = replace(needs, volumes=volumes)
    return [node for node in usable_nodes(nodes, here) if _times(node, here)]


def _has_labels(node: Json, needs: PodNeeds) -> bool:
    return needs.node_selector.items() <= part(node, "metadata", "labels").items()


def taints_against(node: Json, tolerations: Sequence[Mapping[str, Any]]) -> list[Json]:
    """The taints of a node by which the scheduler never places a pod with these tolerations there.

    Taints that a node has only for a while are left out.
    """
    return [
        taint
        for taint in parts(part(node, "spec"), "taints")
        if taint.get("effect") != "PreferNoSchedule"
        and not str(taint["key"]).startswith(PASSES)
        and not str(taint["key"]).endswith(UNTIL_READY)
        and not any(_tolerates(toleration, taint) for toleration in tolerations)
    ]


def _tolerates(toleration: Mapping[str, Any], taint: Json) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    exists = toleration.get("operator") == "Exists"
    if toleration.get("key") in (None, ""):
        return exists
    if toleration["key"] != taint["key"]:
        return False
    return exists or str(toleration.get("value") or "") == str(taint.get("value") or "")


def _offers(node: Json, resource: str) -> float:
    return amount(_offered(node, resource))


def _offered(node: Json, resource: str) -> str:
    return str(part(node, "status", "allocatable").get(resource) or "0")


def _times(node: Json, needs: PodNeeds) -> int:
    """How many of the pods fit on the node while it is empty, also by its limit for `pods`."""
    wanted = {resource: amount(text) for resource, text in needs.requests.items()} | {"pods": 1.0}
    return min(int(_offers(node, name) / each + 1e-9) for name, each in wanted.items() if each)


def _no_labels(nodes: Sequence[Json], needs: PodNeeds) -> str:
    wanted = ", ".join(f"{key}: {value}" for key, value in needs.node_selector.items())
    if not nodes:
        return "the cluster has no node, so no pod can run"
    has = "; ".join(f"{key} is {_values(nodes, key)}" for key in needs.node_selector)
    return (
        f"nodeSelector: {wanted} cannot be used: none of the {len(nodes)} nodes has that ({has}). "
        "Set labels of nodes that are there (`kubectl get nodes --show-labels`)"
    )


def _elsewhere(nodes: Sequence[Json], volume: LimitedVolume) -> str:
    has = "; ".join(f"{key} is {_values(nodes, key)}" for key in volume.keys)
    return (
        f"storage: {volume.what} can be used on nodes with {volume.words} alone, and no node that "
        f"these pods could use is one of them ({has}; compared were {shown_names(nodes)}). Set a "
        "claim or a class of their place, or a nodeSelector that leads to nodes there"
    )


def _values(nodes: Sequence[Json], key: str) -> str:
    found = {label(node, key) for node in nodes} - {""}
    return ", ".join(sorted(found)) or "on no node"


def _not_tolerated(nodes: Sequence[Json], needs: PodNeeds) -> str:
    taints = _each(
        nodes, lambda node: ", ".join(map(_taint, taints_against(node, needs.tolerations)))
    )
    first = taints_against(nodes[0], needs.tolerations)[0]
    value = f", value: {first['value']}" if first.get("value") else ""
    operator = "Equal" if value else "Exists"
    return (
        f"tolerations: the pods tolerate no node that they could use ({taints}). If they are meant "
        f"for these nodes, add {{key: {first['key']}, operator: {operator}{value}, "
        f"effect: {first['effect']}}}"
    )


def _taint(taint: Json) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def _too_large(nodes: Sequence[Json], resource: str, wanted: str) -> str:
    key = KEYS.get(resource) or ("network" if "/" in resource else resource)
    offered = _each(nodes, lambda node: _offered(node, resource))
    hint = "Set less in networkOptions" if key == "network" else "Set less"
    if "/" in resource and not any(_offers(node, resource) for node in nodes):
        plugin = INSTALL.get(resource, f"the device plugin that offers {resource}")
        hint = _others(nodes, resource) or f"Install {plugin}, or choose other nodes"
    return (
        f"{key}: a pod asks for {wanted} {resource}, and no node that it could use has so much "
        f"({offered}). {hint}"
    )


def _others(nodes: Sequence[Json], resource: str) -> str:
    """What to do if nodes offer not this resource but similar ones; empty: they offer none."""
    if resource == GPU_RESOURCE:
        return _other_gpus(nodes)
    if resource in INSTALL:
        return ""
    names = {name for node in nodes for name in part(node, "status", "allocatable")}
    others = [
        name
        for name in sorted(names)
        if "/" in name and name not in KEYS and any(_offers(node, name) for node in nodes)
    ]
    shown = first_of(others, MOST_NAMES)
    return f"The nodes offer {shown}: if one of these is meant, set its name" if others else ""


def _other_gpus(nodes: Sequence[Json]) -> str:
    """What to do if a node offers GPUs under another name; empty: none does."""
    for node in nodes:
        for name in sorted(part(node, "status", "allocatable")):
            hint = next((words for begin, words in OTHER_GPUS if name.startswith(begin)), "")
            if hint and _offers(node, name):
                return f"{name_of(node)} offers {name} instead. {hint}"
    return ""


def _all_of(needs: PodNeeds) -> str:
    return ", ".join(f"{text} {resource}" for resource, text in needs.requests.items())


def _each(nodes: Sequence[Json], say: Callable[[Json], str]) -> str:
    return first_of([f"{name_of(node)}: {say(node)}" for node in nodes], MOST_NAMES, "; ")


def shown_names(nodes: Sequence[Json]) -> str:
    """The names of the first nodes, and how many more there are, for a message."""
    return first_of([name_of(node) for node in nodes], MOST_NAMES)

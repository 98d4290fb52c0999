"""Counts the nodes of a platform and their GPUs. This module is pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cli.status.node_findings import NodeFinding
from cli.status.storage import Claim
from infra.kube.objects import Json, has_ended, is_true, machine_of, name_of, part, parts
from infra.kube.quantity import whole
from infra.names import GPU_RESOURCE

DYNAMIC = "they are handed out by Dynamic Resource Allocation, whose claims are not counted"
GPUS = re.compile(rf"{re.escape(GPU_RESOURCE)}(\.shared)?$|nvidia\.com/mig-")


@dataclass(frozen=True)
class PlatformStatus:
    """The state of the platform's nodes, GPUs and claims.

    Args:
        nodes: the number of nodes; None if they may not be read.
        not_ready: the names of the nodes that are not Ready.
        silent: for each node whose report is overdue, the seconds since its last report.
        gpus: how many GPUs all nodes offer.
        gpus_used: how many of them pods use; None if the pods of all namespaces may not be read, or
            the GPUs are handed out by Dynamic Resource Allocation.
        unseen: what could not be read, and why.
        findings: what is wrong with the machines.
        claims: the claims through which the runs reach their data.
        gpus_idle: how many GPUs no pod uses, by the name of the node, for the nodes that are Ready
            and have such GPUs.
    """

    nodes: int | None
    not_ready: tuple[str, ...] = ()
    gpus: int = 0
    gpus_used: int | None = None
    unseen: str = ""
    silent: Mapping[str, float] = field(default_factory=dict[str, float])
    findings: tuple[NodeFinding, ...] = ()
    claims: tuple[Claim, ...] = ()
    gpus_idle: Mapping[str, int] = field(default_factory=dict[str, int])


def judge_platform(
    nodes: Sequence[Json] | None,
    pods: Sequence[Json] | None,
    unseen: str = "",
    dynamic: Mapping[str, int] | None = None,
) -> PlatformStatus:
    """Count the nodes and their GPUs.

    Args:
        nodes: the nodes; None if they may not be read.
        pods: the pods of all namespaces; None if they may not be read.
        unseen: what could not be read, and why.
        dynamic: the GPUs by Dynamic Resource Allocation, by the name of their node. They count if
            no node offers GPUs by a device plugin.
    """
    if nodes is None:
        return PlatformStatus(None, unseen=unseen)
    not_ready = tuple(name_of(node) for node in nodes if not is_true(node, "Ready"))
    offered = {name_of(node): _gpus(part(node, "status", "allocatable")) for node in nodes}
    total = sum(offered.values())
    if not total and (listed := sum((dynamic or {}).get(name, 0) for name in offered)):
        return PlatformStatus(len(nodes), not_ready, listed, unseen=DYNAMIC)
    if pods is None:
        return PlatformStatus(len(nodes), not_ready, total, unseen=unseen)
    used = sum(gpus_held(pod) for pod in pods)
    # Nobody can use the GPUs of a lost machine, so they do not count as idle.
    idle = {name: count for name, count in offered.items() if name not in not_ready}
    for pod in pods:
        name = machine_of(pod)
        if name in idle:
            idle[name] -= gpus_held(pod)
    free = {name: count for name, count in idle.items() if count > 0}
    return PlatformStatus(len(nodes), not_ready, total, used, unseen, gpus_idle=free)


def gpus_held(pod: Json) -> int:
    """Return how many GPUs a pod holds on a node; 0 if it has ended, or has no node yet."""
    if has_ended(pod) or not machine_of(pod):
        return 0
    return gpus_of(pod)


def gpus_of(pod: Json) -> int:
    """Return how many GPUs the pod's containers ask for."""
    containers = parts(part(pod, "spec"), "containers")
    return sum(_gpus(part(container, "resources", "limits")) for container in containers)


def _gpus(resources: Json) -> int:
    """Count whole GPUs, shared GPUs and MIG slices among the resources.

    Names that begin with nvidia.com/ are not enough, because other devices have such names too, for
    instance the network cards of NVIDIA's Network Operator.
    """
    return sum(whole(count) for name, count in resources.items() if GPUS.match(str(name)))

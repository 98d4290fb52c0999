"""Collects what the pods that watch the machines have found (setting `nodeHealth`).

This module is pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from infra.in_cluster.health_cordon import ANNOTATION, Mark
from infra.in_cluster.health_findings import CLOCK_WORDS, clock_findings
from infra.in_cluster.node_health import CONDITION, UNUSABLE
from infra.kube.names import COMPONENT_LABEL
from infra.kube.objects import (
    Json,
    annotation,
    condition,
    is_true,
    label,
    machine_of,
    name_of,
    part,
)
from infra.names import NODE_HEALTH

SILENT_SECONDS = 300  # such a pod writes its condition every minute


@dataclass(frozen=True)
class NodeFinding:
    """A finding about one node.

    Args:
        node: the name of the node.
        text: a sentence without a full stop.
        needs_attention: whether somebody has to act before trainings can run there again.
    """

    node: str
    text: str
    needs_attention: bool = False


def node_findings(
    nodes: Sequence[Json], pods: Sequence[Json], now: datetime
) -> tuple[NodeFinding, ...]:
    """Return what is wrong with the watched machines, in the order of their nodes' names.

    Args:
        nodes: the nodes of the cluster.
        pods: the pods of all namespaces, or the pods that may be read.
        now: the API server's time.
    """
    cordoned = [
        NodeFinding(name_of(node), _cordoned(name_of(node), mark), needs_attention=True)
        for node in nodes
        if part(node, "spec").get("unschedulable")
        and (mark := Mark.from_text(annotation(node, ANNOTATION))).is_ours
    ]
    watches = [pod for pod in pods if label(pod, COMPONENT_LABEL) == NODE_HEALTH]
    # If a node is not Ready, it is clear that its pods report nothing.
    ready = {name_of(node) for node in nodes if is_true(node, "Ready")}
    told = [found for pod in watches if (found := _told(pod, now)) and found.node in ready]
    return tuple(sorted([*told, *cordoned], key=lambda found: found.node))


def clock_findings_of(
    clocks_ahead: Mapping[str, float], found: Sequence[NodeFinding]
) -> tuple[NodeFinding, ...]:
    """Return findings about wrong clocks, except for nodes with such a finding already.

    Args:
        clocks_ahead: by how many seconds the nodes' clocks are ahead of the API server's.
        found: the findings so far.
    """
    told = {finding.node for finding in found if CLOCK_WORDS in finding.text}
    return tuple(
        NodeFinding(node, f"{wrong.text}; the times here are corrected. Set it by NTP")
        for node, ahead in sorted(clocks_ahead.items())
        for wrong in clock_findings(ahead)
        if node not in told
    )


def _cordoned(node: str, mark: Mark) -> str:
    return (
        f"cordoned by disttrain, because {mark.because}; when the machine is well again: "
        f"kubectl uncordon {node}"
    )


def _told(pod: Json, now: datetime) -> NodeFinding | None:
    node = machine_of(pod)
    said = condition(pod, CONDITION)
    since = str(said.get("lastProbeTime") or part(pod, "metadata")["creationTimestamp"])
    if (now - datetime.fromisoformat(since)).total_seconds() > SILENT_SECONDS:
        return NodeFinding(node, f"pod {name_of(pod)} does not say how the machine is")
    if not said or said.get("status") == "True":
        return None
    return NodeFinding(node, str(said.get("message")), said.get("reason") == UNUSABLE)

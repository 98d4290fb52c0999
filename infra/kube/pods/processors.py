"""Finds out whether nodes have the kind of processor for which the image of the pods is built.

All functions are pure.
"""

from collections.abc import Sequence

from infra.kube.objects import Json, part
from infra.kube.pods.room import PodNeeds, shown_names, usable_nodes


def processors_problem(nodes: Sequence[Json], needs: PodNeeds, built_for: str) -> str:
    """The problem that no node could run the image, in one sentence; empty: one could.

    Args:
        nodes: the nodes of the cluster.
        needs: what the run's pods ask of a node.
        built_for: the kind of processor for which `up` builds the image, such as `amd64`; empty:
            the image is not built, or it is not known for which kind.
    """
    kinds = _kinds(nodes, needs)
    if not built_for or not kinds or built_for in kinds:
        return ""
    return (
        f"imageDelivery: the image would be built for the processors of this machine ({built_for})"
        f", and the nodes that the pods could use have others ({_shown(kinds)}). Run Pulumi on a "
        f"machine with processors of the kind {' or '.join(kinds)}"
    )


def processors_note(nodes: Sequence[Json], needs: PodNeeds) -> str:
    """What to do if the nodes that the pods could use are of several kinds; empty: of one kind."""
    kinds = _kinds(nodes, needs)
    if len(kinds) < 2:
        return ""
    return (
        f"the nodes that the pods could use have several kinds of processors ({_shown(kinds)}), "
        "and the image is for one kind. On the others, pods end with exec format error. Set "
        "nodeSelector to kubernetes.io/arch: KIND"
    )


def _kinds(nodes: Sequence[Json], needs: PodNeeds) -> dict[str, list[Json]]:
    """The usable nodes by their kind of processor, of those that tell it."""
    found: dict[str, list[Json]] = {}
    for node in usable_nodes(nodes, needs):
        if kind := str(part(node, "status", "nodeInfo").get("architecture") or ""):
            found.setdefault(kind, []).append(node)
    return found


def _shown(kinds: dict[str, list[Json]]) -> str:
    return "; ".join(f"{kind}: {shown_names(nodes)}" for kind, nodes in kinds.items())

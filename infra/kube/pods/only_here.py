"""Finds out whether pods may be placed on nodes that lack something that this machine has.

How much CPU or memory a node offers does not matter here, because the pod that prepares the data
set asks for little. All functions are pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from infra.kube.objects import Json, label, name_of, part
from infra.kube.pods.room import PodNeeds, shown_names, usable_nodes
from infra.names import HOSTNAME_LABEL


@dataclass(frozen=True)
class OnlyHere:
    """Something that the pods need and that only this machine has.

    Args:
        setting: the setting that causes this, with its value.
        what: what only this machine has, as a sentence without a full stop.
        instead: what to set if pods are to be on other machines too.
    """

    setting: str
    what: str
    instead: str


def only_here_problem(nodes: Sequence[Json], needs: PodNeeds, thing: OnlyHere, here: str) -> str:
    """The problem that a pod could be placed where the thing is missing, in one sentence.

    The text is empty if no pod could be placed there, or if this cannot be known.

    Args:
        nodes: the nodes of the cluster.
        needs: what the run's pods ask of a node.
        thing: what only this machine has.
        here: the boot id of this machine, as its kubelet reports it; empty: it is not known.
    """
    own = [node for node in nodes if here and _boot_id(node) == here]
    others = [node for node in usable_nodes(nodes, needs) if _boot_id(node) not in ("", here)]
    if not own or not others:  # same_machine.py refuses a cluster without this machine.
        return ""
    name = label(own[0], HOSTNAME_LABEL) or name_of(own[0])
    return (
        f"{thing.setting} cannot be used: {thing.what}, and the pods could also be placed on "
        f"{shown_names(others)}. Set nodeSelector to {HOSTNAME_LABEL}: {name}, or {thing.instead}"
    )


def _boot_id(node: Json) -> str:
    return str(part(node, "status", "nodeInfo").get("bootID") or "")

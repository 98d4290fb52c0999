"""Whether pods may be placed on nodes where something of this machine alone is missing. Pure.

How much the nodes offer does not matter: the pod that prepares the data set asks for little.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from infra.kube.objects import Json, label, name_of, part
from infra.kube.pods.room import PodNeeds, shown_names, usable_nodes
from infra.names import HOSTNAME_LABEL


@dataclass(frozen=True)
class OnlyHere:
    """What pods need and only this machine has.

    Args:
        setting: that decides it, with its value.
        what: it is, as a sentence without its end.
        instead: what to set where pods shall be elsewhere too.
    """

    setting: str
    what: str
    instead: str


def only_here_problem(nodes: Sequence[Json], needs: PodNeeds, thing: OnlyHere, here: str) -> str:
    """Why pods would miss it, in one sentence; empty where they would not, or nobody knows.

    Args:
        nodes: of the cluster.
        needs: of the run's pods.
        thing: what only this machine has.
        here: boot id of this machine, as the kubelet on it reports it; empty: it is not known.
    """
    own = [node for node in nodes if here and _boot_id(node) == here]
    others = [node for node in usable_nodes(nodes, needs) if _boot_id(node) not in ("", here)]
    if not own or not others:  # without an own node see same_machine.py
        return ""
    name = label(own[0], HOSTNAME_LABEL) or name_of(own[0])
    return (
        f"{thing.setting} cannot be used: {thing.what}, and the pods could also be placed on "
        f"{shown_names(others)}. Set nodeSelector to {HOSTNAME_LABEL}: {name}, or {thing.instead}"
    )


def _boot_id(node: Json) -> str:
    return str(part(node, "status", "nodeInfo").get("bootID") or "")

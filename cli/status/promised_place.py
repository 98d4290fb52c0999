"""Finds pods outside the one place that a run has asked Kueue for. This module is pure.

Kueue keeps all pods of a run in one rack, for instance, when it lets the run start. But when a
machine of an MPIJob is lost, it chooses the new one for the launcher or for the workers without
regard to the others (https://github.com/kubernetes-sigs/kueue/issues/6957).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from cli.status.judge import RunStatus
from infra.kube.objects import Json, annotation, machine_of, name_of, part
from infra.names import REQUIRED_TOPOLOGY


def in_promised_place(run: RunStatus, pods: Sequence[Json], nodes: Sequence[Json]) -> RunStatus:
    """Return the state of a run; if its pods are in several places, the text says so.

    Args:
        run: the state of the run.
        pods: its training pods.
        nodes: the nodes, as far as they may be read.
    """
    words = "" if run.is_over else _scattered(pods, nodes)
    return replace(run, detail="; ".join(filter(None, (run.detail, words)))) if words else run


def _scattered(pods: Sequence[Json], nodes: Sequence[Json]) -> str:
    labels = {name_of(node): part(node, "metadata", "labels") for node in nodes}
    wish, found = "", defaultdict[str, list[str]](list)
    for pod in pods:
        asked = annotation(pod, REQUIRED_TOPOLOGY)
        node = machine_of(pod)
        if asked and node in labels and "deletionTimestamp" not in part(pod, "metadata"):
            wish = asked
            found[str(labels[node].get(asked) or "")].append(name_of(pod))
    if len(found) < 2:
        return ""
    fewest_first = sorted(found, key=lambda place: (len(found[place]), place))
    told = ", and ".join(_place(place, found[place]) for place in fewest_first)
    return (
        f"{told}, although the run asks for one place of {wish}: Kueue has replaced a lost machine "
        "without regard to the other pods (kueue#6957). ./disttrain stop and then "
        "./disttrain resume let Kueue choose anew"
    )


def _place(place: str, pods: Sequence[str]) -> str:
    where = f"in {place}" if place else "on a node without that label"
    return f"pod {pods[0]} is {where}" if len(pods) == 1 else f"{len(pods)} pods are {where}"

"""Reads the levels of a queue's topology: labels of nodes, from the widest place to the machine.

The rules are those of Kueue's Topology, and one more: the last level must be the machine. Only then
does Kueue count what is free on each machine, and find another machine for a pod when one fails
(https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from infra.names import (
    HOSTNAME_LABEL,
    PREFERRED_TOPOLOGY,
    REQUIRED_TOPOLOGY,
    TOPOLOGY_ANNOTATIONS,
)
from infra.settings.pod_labels import is_key
from infra.settings.pods import PodSettings
from infra.settings.pods_neighbours import PlacementChoice
from infra.settings.queue import QueueSettings
from infra.settings.reader import Reader

KEY = "queues.topology"
EXAMPLE = f"[topology.kubernetes.io/zone, example.com/rack, {HOSTNAME_LABEL}]"
_MOST_LEVELS = 16  # Kueue's own limit


@dataclass(frozen=True)
class PlatformQueue:
    """The queue that a platform makes: the name of its LocalQueue, and the levels of its topology.

    An empty name means that the platform makes no queue; no levels mean no topology.
    """

    name: str = ""
    levels: tuple[str, ...] = ()


def read_levels(reader: Reader, value: object) -> tuple[str, ...]:
    """Read the levels. If one of them is wrong, the result is empty."""
    given = cast(list[object], value) if isinstance(value, list) else [None]
    if any(type(each) is not str for each in given):
        reader.problem(
            KEY, cast(object, value), "it is not a list of labels", f"Write it like {EXAMPLE}"
        )
        return ()
    levels = tuple(str(each) for each in given)
    for index, label in enumerate(levels[:_MOST_LEVELS]):
        if fault := _fault(levels, index):
            reader.problem(f"{KEY}[{index}]", label, *fault)
    if len(levels) > _MOST_LEVELS:
        reason = f"Kueue accepts at most {_MOST_LEVELS} levels"
        reader.problem(KEY, given, reason, "Leave out levels that no run needs")
    elif levels and levels[-1] != HOSTNAME_LABEL and HOSTNAME_LABEL not in levels:
        reader.problem(
            KEY,
            given,
            f"the last level is not {HOSTNAME_LABEL}, so Kueue would not see how full each machine "
            "is, and would find no other one for a pod whose machine fails",
            f"Add it at the end: pulumi config set --path '{KEY}[{len(levels)}]' {HOSTNAME_LABEL}",
        )
    return levels if _are_right(reader) else ()


def _are_right(reader: Reader) -> bool:
    return reader.are_right(KEY, *(f"{KEY}[{index}]" for index in range(_MOST_LEVELS)))


def _fault(levels: Sequence[str], index: int) -> tuple[str, str] | None:
    """Why the level at this index cannot be used, and what to do; None if it can."""
    label = levels[index]
    if not is_key(label):
        return "it is not the key of a label", "Write it like example.com/rack"
    if label in levels[:index]:
        return f"it is level {levels.index(label) + 1} already", "Name each label once"
    if label == HOSTNAME_LABEL and index != len(levels) - 1:
        return (
            "a machine contains no other place, so it can only be the last level",
            "Write the levels from the widest to the machine",
        )
    return None


def check_placement(
    reader: Reader, pods: PodSettings, queue: QueueSettings, made: PlatformQueue
) -> tuple[str, ...]:
    """Check that a run's placement works with the queue that it is in.

    Args:
        reader: collects the problems that are found.
        pods: settings of the run's pods.
        queue: the queue of the run.
        made: the queue that the run's platform makes.

    Returns:
        The levels of the run's queue, if its platform makes that queue; otherwise none.
    """
    wish = pods.neighbours
    asked = sorted(TOPOLOGY_ANNOTATIONS & pods.demands.annotations.keys())
    if wish.placement == "one-place" and asked:
        reader.problem(
            f"podAnnotations.{asked[0]}",
            pods.demands.annotations[asked[0]],
            "placement is one-place, and both ask for the places of the pods",
            "Remove it, or set placement to auto",
        )
    _check_annotations(reader, {key: pods.demands.annotations[key] for key in asked})
    is_made = bool(queue.name) and queue.name == made.name
    levels = made.levels if is_made else ()
    if not queue.name:
        fault = _fault_without_queue(wish.placement) if reader.are_right("queue") else None
    else:
        knows_levels = is_made and _are_right(reader)
        fault = _fault_in_queue(wish.placement, queue.name, levels) if knows_levels else None
    if fault:
        reader.problem("placement", wish.placement, *fault)
    if levels and wish.label not in levels and reader.are_right("placementLabel"):
        reader.problem(
            "placementLabel",
            wish.label,
            f"it is no level of the topology of queue {queue.name}",
            f"Set one of {', '.join(levels)}",
        )
    return levels


def _check_annotations(reader: Reader, asked: Mapping[str, str]) -> None:
    """Note what Kueue's webhook would refuse of the user's own requests for places.

    It would refuse the new workload, after the former one has saved and ended.

    Args:
        reader: collects the problems that are found.
        asked: the annotations in `podAnnotations` that ask Kueue for a place.
    """
    if len(asked) > 1:
        first, second = list(asked)[:2]
        reason = f"{second} is set, too, and Kueue accepts only one of them"
        reader.problem(f"podAnnotations.{first}", asked[first], reason, "Remove one of the two")
    for name in sorted({REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY} & asked.keys()):
        if not is_key(asked[name]):
            reader.problem(
                f"podAnnotations.{name}",
                asked[name],
                "it is not the key of a label",
                "Set a level of the queue's topology, such as example.com/rack",
            )


def _fault_without_queue(placement: PlacementChoice) -> tuple[str, str] | None:
    """Why a run in no queue cannot have this placement, and what to do; None if it can."""
    if placement != "one-place":
        return None
    return (
        "the run is in no queue, and Kubernetes places one pod after the other, so it cannot look "
        "for a place with room for all of them",
        "Set queue to one with a topology, or placement to packed",
    )


def _fault_in_queue(
    placement: PlacementChoice, queue: str, levels: Sequence[str]
) -> tuple[str, str] | None:
    """Why a run in the queue cannot have this placement, and what to do; None if it can."""
    if placement == "one-place" and not levels:
        return (
            f"queue {queue} of the platform has no topology, so Kueue knows no places",
            f"Set {KEY} of the platform, such as {EXAMPLE}, or placement to packed",
        )
    if placement == "spread" and levels:
        return (
            f"queue {queue} of the platform has a topology, by which Kueue chooses the machine of "
            "each pod, and it knows no wish to be apart",
            "Set auto or packed (near each other, as far as there is room), or one-place",
        )
    return None

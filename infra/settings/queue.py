"""Reads the queue of Kueue in which a run waits."""

from collections.abc import Mapping
from dataclasses import dataclass

from infra.settings.kinds import Chosen, WorkloadChoice
from infra.settings.reader import Reader

_LABEL = r"([a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?)?"  # The name becomes the value of a label.


@dataclass(frozen=True)
class QueueSettings:
    """The names of a LocalQueue and of a WorkloadPriorityClass.

    An empty `name` means that the run is in no queue, an empty `priority` that it has the queue's
    usual priority.
    """

    name: str
    priority: str


def read_queue(
    reader: Reader, topology: Chosen, kinds: Mapping[str, WorkloadChoice], when_busy: str
) -> QueueSettings:
    """Read the run's queue and its priority.

    Args:
        reader: gives the values and collects the problems with them.
        topology: the chosen kind of workload.
        kinds: the registry of workloads.
        when_busy: the setting `whenBusy`.
    """
    name = reader.text("queue", pattern=_LABEL, form="the name of a LocalQueue", example="team-a")
    priority = reader.text(
        "queuePriority",
        pattern=_LABEL,
        form="the name of a WorkloadPriorityClass",
        example="high",
    )
    queued = kinds[topology.name].queued
    if priority and not queued:
        reason = f"topology is {topology.name}, which is in no queue of Kueue"
        reader.problem("queuePriority", priority, reason, "Remove it, or set priorityClass")
    elif priority and not name:
        reader.problem("queuePriority", priority, "the run is in no queue", "Set queue too")
    if not name:
        return QueueSettings("", "")
    if not queued:
        able = ", ".join(kind for kind, choice in kinds.items() if choice.queued)
        own = hasattr(topology.options, "queue")
        way_out = "Name a queue of its own by topologyOptions.queue, or set" if own else "Set"
        reader.problem(
            "queue",
            name,
            f"topology is {topology.name}, whose object has no field to suspend it, so that Kueue "
            "could not hold it back before it has its quota",
            f"{way_out} topology to one of {able}, or remove queue",
        )
    if when_busy == "refuse":
        reader.problem(
            "queue",
            name,
            "whenBusy is refuse, and a run in a queue waits for its turn",
            "Set whenBusy to replace (`pulumi up` ends while the run waits) or to wait",
        )
    return QueueSettings(name, priority)

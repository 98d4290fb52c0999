"""Marks that controllers read of a workload, and not of its pods.

Users of Kueue and of Volcano know them from their own manifests. On the pods alone they would do
nothing, or hold back each pod for itself, and the run would not be in the queue that they name.
"""

from collections.abc import Mapping

from infra.names import QUEUE_LABEL, QUEUE_PRIORITY_LABEL
from infra.settings.reader import Reader

VOLCANO_QUEUE = "scheduling.volcano.sh/queue-name"
KEYS = {
    QUEUE_LABEL: "queue",
    QUEUE_PRIORITY_LABEL: "queuePriority",
    VOLCANO_QUEUE: "--path topologyOptions.queue",
}
"""The setting for what a mark means, as `pulumi config set` takes it."""


def refuse_marks_of_workloads(reader: Reader, key: str, marks: Mapping[str, str]) -> None:
    """Add a problem for each of them.

    Args:
        reader: collects what is wrong.
        key: the setting that gives the pods these marks.
        marks: labels or annotations.
    """
    for name in KEYS.keys() & marks.keys():
        value = marks[name]
        reader.problem(
            f"{key}.{name}",
            value,
            "of a pod it is not read, or it holds back that pod alone, and the run as a whole "
            "would not be in that queue",
            f"Set it for the run: `pulumi config set {KEYS[name]} {value}`, and remove it here",
        )

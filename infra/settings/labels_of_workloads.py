"""Refuses labels and annotations on pods that controllers read only on the workload.

Users of Kueue and of Volcano know these labels and annotations from their own manifests. On the
pods alone they have no effect, or they hold back each pod separately, and the run is not in the
queue that they name.
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
"""The setting with the same meaning as a label or annotation, for `pulumi config set`."""


def refuse_labels_of_workloads(reader: Reader, key: str, given: Mapping[str, str]) -> None:
    """Note a problem for each label or annotation in `given` that belongs on the workload.

    Args:
        reader: collects the problems that are found.
        key: the setting that holds `given`.
        given: labels or annotations for the pods.
    """
    for name in KEYS.keys() & given.keys():
        value = given[name]
        reader.problem(
            f"{key}.{name}",
            value,
            "of a pod it is not read, or it holds back that pod alone, and the run as a whole "
            "would not be in that queue",
            f"Set it for the run: `pulumi config set {KEYS[name]} {value}`, and remove it here",
        )

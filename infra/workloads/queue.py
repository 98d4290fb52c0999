"""Puts a workload into a queue of Kueue (https://kueue.sigs.k8s.io/docs/tasks/run/jobs/)."""

from infra.names import QUEUE_LABEL, QUEUE_PRIORITY_LABEL
from infra.objects import Manifest
from infra.workloads.run import Run


def queue_labels(queue: str, priority: str) -> dict[str, str]:
    """The labels that put a workload into a queue.

    Args:
        queue: the name of a LocalQueue in the run's namespace; empty if the run is in no queue.
        priority: the name of a WorkloadPriorityClass; empty for the queue's default.
    """
    if not queue:
        return {}
    return {QUEUE_LABEL: queue, **({QUEUE_PRIORITY_LABEL: priority} if priority else {})}


def in_its_queue(run: Run, manifest: Manifest) -> Manifest:
    """The workload's manifest with the labels of its queue; unchanged if the run is in no queue.

    The field that suspends the workload is not set here, because Kueue owns it and sets it at once.
    """
    if not run.queue:
        return manifest
    metadata = manifest["metadata"]
    labels = {**metadata["labels"], **run.queue}
    return {**manifest, "metadata": {**metadata, "labels": labels}}

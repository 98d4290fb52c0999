"""A workload that stands in a queue of Kueue (https://kueue.sigs.k8s.io/docs/tasks/run/jobs/)."""

from infra.names import QUEUE_LABEL, QUEUE_PRIORITY_LABEL
from infra.objects import Manifest
from infra.workloads.run import Run


def queue_labels(queue: str, priority: str) -> dict[str, str]:
    """The labels of a workload by which Kueue takes it up.

    Args:
        queue: name of a LocalQueue in the run's namespace; empty: the run stands in no queue.
        priority: name of a WorkloadPriorityClass; empty: the queue's default.
    """
    if not queue:
        return {}
    return {QUEUE_LABEL: queue, **({QUEUE_PRIORITY_LABEL: priority} if priority else {})}


def in_its_queue(run: Run, manifest: Manifest) -> Manifest:
    """The workload's manifest with those labels; the same manifest where the run has none.

    The field that suspends it is left out: it is Kueue's, which sets it at once.
    """
    if not run.queue:
        return manifest
    metadata = manifest["metadata"]
    labels = {**metadata["labels"], **run.queue}
    return {**manifest, "metadata": {**metadata, "labels": labels}}

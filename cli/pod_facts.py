"""Reads what a pod of a run says about itself: its node rank, its start and its variables.

This module is pure.
"""

from datetime import datetime

from infra.kube.objects import Json, annotation, label, name_of, part, parts

# The labels with the index of a pod: of a StatefulSet, of an Indexed Job (JobSet and TrainJob use
# one), of a PyTorchJob or an MPIJob, and of Volcano's Job.
INDEX_LABELS = (
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index",
    "volcano.sh/task-index",
)
# Variables that infra/workloads/pod.py gives to the pods.
NODES = "PET_NNODES"
"""The variable with the number of pods of the run."""
RANKS = "PET_NPROC_PER_NODE"
"""The variable with the number of ranks in each pod."""


def node_of(pod: Json) -> int:
    """Return the node rank of a pod, as trainer/launch/node.py finds it."""
    for key in INDEX_LABELS:
        index = label(pod, key) or annotation(pod, key)
        if index.isdecimal():
            return int(index)
    owners = {str(owner.get("kind")) for owner in parts(part(pod, "metadata"), "ownerReferences")}
    ordinal = name_of(pod).rpartition("-")[2]  # in older clusters a StatefulSet sets no such label
    return int(ordinal) if "StatefulSet" in owners and ordinal.isdecimal() else 0


def has_begun(pod: Json) -> bool:
    """Whether a container of the pod may have written something."""
    return part(pod, "status").get("phase") not in (None, "Pending")


def started_at(pod: Json) -> float:
    """Return when the pod's node accepted the pod, in seconds since the epoch; 0.0 if not known."""
    text = str(part(pod, "status").get("startTime") or "")
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def number_told(pod: Json, variable: str) -> int | None:
    """Return the number in a variable of a pod's containers; None if no container has it."""
    for container in parts(part(pod, "spec"), "containers"):
        for each in parts(container, "env"):
            if each.get("name") == variable and str(each.get("value")).isdecimal():
                return int(each["value"])
    return None

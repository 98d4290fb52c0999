"""The labels and annotations that a run's pods have for other programs of the cluster.

The cluster's owner may run programs that move pods to save machines, and service meshes that put
a proxy into pods. A training with an evicted pod, or with a proxy between its ranks, stops. So the
pods of the training and of the data set tell these programs to leave them alone.
"""

from collections.abc import Mapping

from infra.names import NO_MESH_ANNOTATIONS, NO_MESH_LABELS

# Each eviction makes all pods of the run save and start again. The controllers read these
# annotations only when they save machines; the pods can still be evicted and drained by people.
STAYS = {
    # https://karpenter.sh/docs/concepts/disruption/#pod-level-controls
    "karpenter.sh/do-not-disrupt": "true",
    # https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    # https://github.com/kubernetes-sigs/descheduler#pod-evictions
    "descheduler.alpha.kubernetes.io/prefer-no-eviction": "true",
}
# Node selectors that ask for spot machines. When such a machine is taken away, Karpenter evicts
# its pods, and they save. It would not evict pods with its annotation, and GKE Autopilot accepts
# no spot pod with that of the cluster autoscaler.
SPOT = {"karpenter.sh/capacity-type": "spot", "cloud.google.com/gke-spot": "true"}


def pod_labels(given: Mapping[str, str]) -> dict[str, str]:
    """The labels of a pod of a run, without those by which disttrain finds it.

    Args:
        given: the user's own labels (`podLabels`). They win over those of this project.
    """
    return _without_empty({**NO_MESH_LABELS, **given}, NO_MESH_LABELS)


def pod_annotations(given: Mapping[str, str], node_selector: Mapping[str, str]) -> dict[str, str]:
    """The annotations of a pod of a run for other programs of the cluster, and the user's own.

    Args:
        given: the user's own annotations (`podAnnotations`). They win over those of this project.
        node_selector: the labels that the node of the pod must have.
    """
    stays = {} if SPOT.items() & node_selector.items() else STAYS
    ours = {**NO_MESH_ANNOTATIONS, **stays}
    return _without_empty({**ours, **given}, ours)


def _without_empty(marks: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """The labels or annotations without those of `ours` for which the user gives an empty text.

    The descheduler looks only whether its annotation is there, so no value can switch it off.
    """
    return {name: value for name, value in marks.items() if value or name not in ours}

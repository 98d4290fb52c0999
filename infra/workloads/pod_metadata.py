"""The labels and annotations that a run's pods have for other programs of the cluster.

The cluster's owner may run programs that move pods to save machines, and service meshes that put
a proxy into pods. A training with an evicted pod, or with a proxy between its ranks, stops. So the
pods of the training and of the data set tell these programs to leave them alone.
"""

from collections.abc import Mapping

from infra.pod_metadata import NO_MESH_ANNOTATIONS, NO_MESH_LABELS, STAYS_ANNOTATIONS, with_own

# Node selectors that ask for spot machines. When such a machine is taken away, Karpenter evicts
# its pods, and they save. It would not evict pods with its annotation, and GKE Autopilot accepts
# no spot pod with that of the cluster autoscaler.
SPOT = {"karpenter.sh/capacity-type": "spot", "cloud.google.com/gke-spot": "true"}


def pod_labels(given: Mapping[str, str]) -> dict[str, str]:
    """The labels of a pod of a run, without those by which disttrain finds it.

    Args:
        given: the user's own labels (`podLabels`). They win over those of this project.
    """
    return with_own(NO_MESH_LABELS, given)


def pod_annotations(given: Mapping[str, str], node_selector: Mapping[str, str]) -> dict[str, str]:
    """The annotations of a pod of a run for other programs of the cluster, and the user's own.

    Args:
        given: the user's own annotations (`podAnnotations`). They win over those of this project.
        node_selector: the labels that the node of the pod must have.
    """
    stays = {} if SPOT.items() & node_selector.items() else STAYS_ANNOTATIONS
    return with_own({**NO_MESH_ANNOTATIONS, **stays}, given)

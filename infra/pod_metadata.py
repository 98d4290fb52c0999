"""Labels and annotations that pods have for other programs of the cluster, and the user's own.

The cluster's owner may run programs that move pods to save machines, and service meshes that put
a proxy into pods. A training with an evicted pod, or with a proxy between its ranks, stops. So the
pods of the training and of the data set tell these programs to leave them alone.
"""

from collections.abc import Mapping

# What keeps the proxy of a service mesh out of a pod (Istio with sidecars, Istio in ambient mode,
# Linkerd). Such a proxy would be between the ranks, and a Job would not end, because the proxy
# does not. https://istio.io/latest/docs/setup/additional-setup/sidecar-injection/
# https://istio.io/latest/docs/ambient/usage/add-workloads/
# https://linkerd.io/2/reference/proxy-configuration/
NO_MESH_LABELS = {"sidecar.istio.io/inject": "false", "istio.io/dataplane-mode": "none"}
NO_MESH_ANNOTATIONS = {"linkerd.io/inject": "disabled"}
# Annotations that ask programs which save machines not to evict the pods of a run. Each eviction
# makes all pods of the run save and start again. The programs read these annotations only when they
# save machines; the pods can still be evicted and drained by people.
STAYS_ANNOTATIONS = {
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
_OURS = NO_MESH_LABELS | NO_MESH_ANNOTATIONS | STAYS_ANNOTATIONS


def with_own(ours: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The labels or the annotations of a pod. The user's own win.

    An empty text of the user's removes one that pods have from this project. Programs such as the
    descheduler look only whether it is there, so no value could switch it off. For the same reason
    an empty one is never added to a pod that does not have it anyway.

    Args:
        ours: those that the pod has from this project.
        given: the user's own (`podLabels` or `podAnnotations`).
    """
    merged = {**ours, **given}
    return {name: value for name, value in merged.items() if value or name not in _OURS}


def pod_annotations(given: Mapping[str, str], node_selector: Mapping[str, str]) -> dict[str, str]:
    """The annotations of a pod of a run for other programs of the cluster, and the user's own.

    Args:
        given: the user's own annotations (`podAnnotations`). They win over those of this project.
        node_selector: the labels that the node of the pod must have.
    """
    stays = {} if SPOT.items() & node_selector.items() else STAYS_ANNOTATIONS
    return with_own({**NO_MESH_ANNOTATIONS, **stays}, given)

"""Finds nodes that offer parts of GPUs under the name of whole ones. All functions are pure.

https://github.com/NVIDIA/k8s-device-plugin/blob/main/docs/gpu-feature-discovery/README.md
https://cloud.google.com/kubernetes-engine/docs/concepts/timesharing-gpus
"""

from collections.abc import Sequence

from infra.kube.objects import Json, label
from infra.kube.pods.room import PodNeeds, shown_names, usable_nodes
from infra.kube.quantity import amount
from infra.names import GPU_RESOURCE

# Labels of nodes that offer parts, whatever their value is.
OF_PARTS = ("cloud.google.com/gke-gpu-sharing-strategy", "cloud.google.com/gke-gpu-partition-size")


def shared_gpus_note(nodes: Sequence[Json], needs: PodNeeds) -> str:
    """What the ranks of a run may meet on nodes with parts of GPUs; empty: there are no such nodes.

    Args:
        nodes: the nodes of the cluster.
        needs: what the run's pods ask of a node. With one GPU in all, a part is as good.
    """
    ranks = round(needs.pods * amount(needs.requests.get(GPU_RESOURCE, "0")))
    shared = [node for node in usable_nodes(nodes, needs) if offers_parts(node)]
    if ranks < 2 or not shared:
        return ""
    return (
        f"parts of GPUs count as {GPU_RESOURCE} on {shown_names(shared)} (time slices, MPS or MIG),"
        f" and this run has {ranks} ranks. NCCL refuses two ranks on one GPU (Duplicate GPU "
        "detected). Set a nodeSelector that leads to whole GPUs, or use one rank (gpus: 1)"
    )


def offers_parts(node: Json) -> bool:
    """Whether the node's GPUs are divided into MIG instances, or each is offered several times."""
    product = label(node, "nvidia.com/gpu.product")
    return (
        label(node, "nvidia.com/gpu.sharing-strategy") in ("time-slicing", "mps")
        or "-MIG-" in product
        or product.endswith("-SHARED")
        or any(label(node, key) for key in OF_PARTS)
    )

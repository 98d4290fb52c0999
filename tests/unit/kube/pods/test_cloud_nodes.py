"""Whether pods fit on nodes with the labels, taints and devices that clouds give them.

The values are from the clouds' documentation. No test has asked a cluster of these clouds.
"""

import pytest

from infra.kube.pods.room import PodNeeds, room_problem
from infra.names import GPU_RESOURCE, GPU_TOLERATION
from tests.unit.kube.pods.instances import EFA, P4D, P5, P5EN, P6, SYSTEM, TYPE, Json, node

GKE = node(
    "gke-h100",
    {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb", TYPE: "a3-highgpu-8g"},
    {GPU_RESOURCE: "8"},
    f"{GPU_RESOURCE}=present:NoSchedule",
)
GKE_SPOT = node(
    "gke-spot",
    {"cloud.google.com/gke-accelerator": "nvidia-l4", "cloud.google.com/gke-spot": "true"},
    {GPU_RESOURCE: "1"},
    f"{GPU_RESOURCE}=present:NoSchedule",
    "cloud.google.com/gke-spot=true:NoSchedule",
)
AKS = node(
    "aks-gpu",
    {"kubernetes.azure.com/accelerator": "nvidia", "kubernetes.azure.com/agentpool": "gpu"},
    {GPU_RESOURCE: "8"},
    "sku=gpu:NoSchedule",
)
AKS_SPOT = node(
    "aks-spot",
    {"kubernetes.azure.com/scalesetpriority": "spot"},
    {GPU_RESOURCE: "4"},
    "kubernetes.azure.com/scalesetpriority=spot:NoSchedule",
)


@pytest.mark.parametrize(
    ("nodes", "requests", "selector", "tolerations", "pods", "said"),
    [
        ([SYSTEM, P4D, P4D], {GPU_RESOURCE: "8"}, {TYPE: "p4d.24xlarge"}, [], 2, ""),
        ([SYSTEM, P4D], {GPU_RESOURCE: "8"}, {TYPE: "p4d.24xlarge"}, [], 2, "room for 1 of these"),
        ([SYSTEM, P5], {GPU_RESOURCE: "8"}, {TYPE: "p4d.24xlarge"}, [], 1, "is m5.large, p5.48xl"),
        ([P4D], {GPU_RESOURCE: "8", EFA: "4"}, {}, [], 1, ""),
        ([P5], {GPU_RESOURCE: "8", EFA: "32"}, {}, [], 1, ""),
        ([P5EN], {GPU_RESOURCE: "8", EFA: "16"}, {}, [], 1, ""),
        ([P6], {GPU_RESOURCE: "8", EFA: "8"}, {}, [], 1, ""),
        ([P4D, P5EN], {EFA: "32"}, {}, [], 1, f"asks for 32 {EFA}, and no node that it could use"),
        ([P6], {GPU_RESOURCE: "4", EFA: "8"}, {}, [], 2, "room for 1 of these"),
        ([SYSTEM, GKE], {GPU_RESOURCE: "8"}, {}, [], 1, ""),
        ([GKE_SPOT], {GPU_RESOURCE: "1"}, {}, [], 1, "add {key: cloud.google.com/gke-spot, operat"),
        ([GKE_SPOT], {GPU_RESOURCE: "1"}, {}, ["cloud.google.com/gke-spot"], 1, ""),
        ([GKE_SPOT], {GPU_RESOURCE: "8"}, {}, ["cloud.google.com/gke-spot"], 1, "(gke-spot: 1)"),
        ([AKS], {GPU_RESOURCE: "8"}, {}, [], 1, "add {key: sku, operator: Equal, value: gpu, eff"),
        ([AKS], {GPU_RESOURCE: "8"}, {}, ["sku"], 1, ""),
        ([AKS, AKS_SPOT], {GPU_RESOURCE: "4"}, {}, ["sku"], 3, "room for 2 of these"),
    ],
)  # fmt: skip
def test_pods_on_a_clouds_nodes_fit_or_are_refused_in_a_sentence(
    nodes: list[Json],
    requests: dict[str, str],
    selector: dict[str, str],
    tolerations: list[str],
    pods: int,
    said: str,
) -> None:
    """Pods that do not fit on a cloud's nodes are refused, and the message says what to change. All
    training pods tolerate the taint that GKE puts on nodes with GPUs.
    """
    also = [{"key": key, "operator": "Exists"} for key in tolerations]
    problem = room_problem(nodes, PodNeeds(pods, requests, selector, [GPU_TOLERATION, *also]))
    assert said in problem
    assert bool(problem) == bool(said)


@pytest.mark.parametrize(
    "key",
    [
        "karpenter.sh/disrupted",
        "karpenter.sh/unregistered",
        "ToBeDeletedByClusterAutoscaler",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "startup-taint.cluster-autoscaler.kubernetes.io/driver",
        "node.cilium.io/agent-not-ready",
        "efs.csi.aws.com/agent-not-ready",
    ],
)
def test_taints_that_pass_do_not_count(key: str) -> None:
    """A run is not refused for a taint that an autoscaler, a cloud or an agent of the node adds for
    a while. The advice would be to tolerate it, and the pods would come to a node that ends.
    """
    begins = node("n", {}, {GPU_RESOURCE: "8"}, f"{key}:NoSchedule")
    assert room_problem([begins], PodNeeds(1, {GPU_RESOURCE: "8"}, {}, [])) == ""


@pytest.mark.parametrize(
    ("resource", "hint"),
    [
        ("nvidia.com/mig-1g.10gb", "With the MIG strategy single"),
        ("nvidia.com/gpu.shared", "With renameByDefault: false"),
        ("amd.com/gpu", "Only NVIDIA's GPUs can be used"),
        ("gpu.intel.com/i915", "Only NVIDIA's GPUs can be used"),
        ("vendor.example/card", "Install NVIDIA's device plugin"),
    ],
)
def test_gpus_of_another_name_are_named(resource: str, hint: str) -> None:
    """If the nodes offer GPUs by another resource name, the message names it and says why. The
    advice to install NVIDIA's device plugin is given only if no such name is known.
    """
    mine = node("mine", {}, {resource: "7", GPU_RESOURCE: "0"})
    problem = room_problem([mine, SYSTEM], PodNeeds(1, {GPU_RESOURCE: "1"}, {}, []))
    assert hint in problem
    assert (f"mine offers {resource} instead" in problem) == ("Install" not in hint)
    both = node("both", {}, {resource: "7", GPU_RESOURCE: "2"})
    problem = room_problem([both], PodNeeds(1, {GPU_RESOURCE: "8"}, {}, []))
    assert problem.endswith("(both: 2). Set less")

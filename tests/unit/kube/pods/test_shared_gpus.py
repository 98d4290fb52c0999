"""Nodes that offer parts of GPUs as whole ones, which a run of several ranks cannot use.

The labels are from the documentation of NVIDIA's GPU feature discovery and of GKE.
"""

import pytest

from infra.kube.pods.room import PodNeeds
from infra.kube.pods.shared_gpus import shared_gpus_note
from infra.names import GPU_RESOURCE
from tests.unit.kube.pods.instances import node

GPUS = {GPU_RESOURCE: "8"}
WHOLE = node("whole", {"nvidia.com/gpu.sharing-strategy": "none"}, GPUS)


@pytest.mark.parametrize(
    "labels",
    [
        {"nvidia.com/gpu.sharing-strategy": "time-slicing"},
        {"nvidia.com/gpu.sharing-strategy": "mps"},
        {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"},
        {"nvidia.com/gpu.product": "Tesla-T4-SHARED"},
        {"cloud.google.com/gke-gpu-sharing-strategy": "time-sharing"},
        {"cloud.google.com/gke-gpu-partition-size": "1g.5gb"},
    ],
)
def test_parts_of_gpus_are_said(labels: dict[str, str]) -> None:
    """A note names the nodes that offer parts of GPUs, if the run has several ranks. Otherwise the
    ranks would end with `Duplicate GPU detected` after everything was built and pushed.
    """
    nodes = [WHOLE, node("parts", labels, GPUS)]
    for pods, each in ((2, "1"), (1, "2")):
        note = shared_gpus_note(nodes, PodNeeds(pods, {GPU_RESOURCE: each}, {}, []))
        assert note.startswith("parts of GPUs count as nvidia.com/gpu on parts (time slices, MPS")
    for none in (
        shared_gpus_note(nodes, PodNeeds(1, {GPU_RESOURCE: "1"}, {}, [])),
        shared_gpus_note(nodes, PodNeeds(2, {"cpu": "1"}, {}, [])),
        shared_gpus_note([WHOLE], PodNeeds(2, {GPU_RESOURCE: "1"}, {}, [])),
    ):
        assert none == ""

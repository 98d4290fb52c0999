"""Clusters that hand out their GPUs by Dynamic Resource Allocation: their nodes offer no
nvidia.com/gpu.
"""

from collections.abc import Mapping
from typing import Any

from infra.kube.api_server.findings import Findings
from infra.kube.errors import ApiError
from infra.kube.runs.pods_findings import RunPods, pods_findings
from infra.names import GPU_RESOURCE
from tests.unit.kube.server import ApiServer, Json, api_of

CONTAINER: Json = {"name": "t", "resources": {"limits": {GPU_RESOURCE: "8"}}}
POD: Json = {"metadata": {}, "spec": {"containers": [CONTAINER]}}
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"


def device_class(name: str, **spec: str) -> Json:
    return {"metadata": {"name": name}, "spec": spec}


class Cluster(ApiServer):
    """A stand-in for a cluster with one node.

    Args:
        offers: what the node offers besides pods.
        classes: the DeviceClasses; None: the API server knows no such kind; `forbidden`: these
            credentials may not list them.
    """

    def __init__(self, offers: Json, classes: list[Json] | str | None) -> None:
        self._offers, self._classes = offers, classes
        self.asked = list[str]()

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        self.asked.append(path)
        if method == "POST":
            return body
        if path == CLASSES:
            if self._classes == "forbidden":
                raise ApiError(403, "may not list deviceclasses")
            return None if self._classes is None else {"items": self._classes}
        if path == "/api/v1/nodes":
            status = {"allocatable": {"pods": "9", **self._offers}}
            return {"items": [{"metadata": {"name": "gpu1"}, "spec": {}, "status": status}]}
        return {"items": []} if path.endswith("/resourcequotas") else None


def found_on(cluster: Cluster) -> Findings:
    return pods_findings(api_of(cluster), RunPods("ml", POD, 1, grows=False))


def test_class_that_answers_is_enough() -> None:
    """A run is not refused because nodes offer no nvidia.com/gpu, if a DeviceClass answers such
    requests. NVIDIA's driver for it makes that class, and the scheduler gives such a pod its GPUs.
    A note says that they were not counted.
    """
    named = device_class("gpu.nvidia.com", extendedResourceName=GPU_RESOURCE)
    found = found_on(Cluster({}, [named]))
    assert found.problems == []
    (note,) = found.notes
    assert "DeviceClass gpu.nvidia.com" in note
    assert "whether the nodes have enough GPUs" in note


def test_other_faults_of_such_nodes_count() -> None:
    """What else the pods ask of their nodes is checked there too."""
    named = device_class("gpu.nvidia.com", extendedResourceName=GPU_RESOURCE)
    (problem,) = found_on(Cluster({"pods": "0"}, [named])).problems
    assert problem.startswith("no node offers at once all that a pod asks for")


def test_class_for_claims_alone_is_named() -> None:
    """If the DeviceClass of NVIDIA's driver answers only ResourceClaims, the run is refused with
    that reason. The advice to install NVIDIA's device plugin would be wrong: both must not hand out
    the same GPUs.
    """
    (problem,) = found_on(Cluster({}, [device_class("gpu.nvidia.com")])).problems
    assert "Dynamic Resource Allocation (DeviceClass gpu.nvidia.com)" in problem
    assert "extendedResourceName: nvidia.com/gpu" in problem
    assert "Install" not in problem


def test_few_gpus_of_plugins_stay_few() -> None:
    """If the nodes offer some nvidia.com/gpu, but too few, that is what the message says."""
    (problem,) = found_on(Cluster({GPU_RESOURCE: "4"}, [device_class("gpu.nvidia.com")])).problems
    assert "no node that it could use has so much (gpu1: 4). Set less" in problem


def test_cluster_without_classes_is_judged() -> None:
    """Where DeviceClasses may not be listed, are not known, or belong to other devices, the message
    is that of nodes without GPUs.
    """
    for classes in ("forbidden", None, [], [device_class("nic.example.com")]):
        (problem,) = found_on(Cluster({}, classes)).problems
        assert "Install NVIDIA's device plugin" in problem


def test_classes_are_asked_without_room() -> None:
    """A cluster whose nodes offer enough GPUs is not asked for DeviceClasses."""
    cluster = Cluster({GPU_RESOURCE: "8"}, [])
    assert found_on(cluster).problems == []
    assert CLASSES not in cluster.asked

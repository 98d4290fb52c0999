"""Looks for GPUs that a cluster hands out by Dynamic Resource Allocation, without a device plugin.

Its nodes offer no nvidia.com/gpu. But a DeviceClass may let the scheduler give GPUs to pods that
ask for that, from Kubernetes 1.36 on, and the class that comes with NVIDIA's driver does.

https://kubernetes.io/docs/concepts/resource-management/dynamic-resource-allocation/
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings, object_at
from infra.kube.objects import Json, name_of, part, parts
from infra.kube.pods.room import PodNeeds, room_problem, usable_nodes
from infra.kube.quantity import amount
from infra.names import GPU_RESOURCE

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
DEVICE_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
OF_NVIDIA = "gpu.nvidia.com"  # NVIDIA's driver, and the class of GPUs that comes with it


def dynamic_gpus(api: Api) -> dict[str, int]:
    """How many whole GPUs NVIDIA's driver lists for each node, by the node's name.

    It is empty if these credentials may not list ResourceSlices, and in Kubernetes 1.33 and older.
    """
    listed = object_at(api, SLICES)
    return gpus_of_slices(parts(listed, "items") if isinstance(listed, dict) else [])


def gpus_of_slices(slices: Iterable[Json]) -> dict[str, int]:
    """Count the whole GPUs of NVIDIA's driver in ResourceSlices, by the name of their node.

    MIG devices do not count: with dynamic MIG, a GPU is listed beside each part that it could have.
    """
    names = dict[str, set[str]]()
    for each in slices:
        spec = part(each, "spec")
        for device in parts(spec, "devices") if spec.get("driver") == OF_NVIDIA else []:
            # While a driver replaces its list, a device is in two slices.
            if part(device, "attributes", "type").get("string") == "gpu":
                names.setdefault(str(spec.get("nodeName")), set()).add(str(device["name"]))
    return {node: len(devices) for node, devices in names.items()}


def problem_with_dynamic_gpus(
    api: Api, nodes: Sequence[Json], needs: PodNeeds, problem: str, found: Findings
) -> str:
    """Why the nodes can never hold the pods if GPUs may be handed out without a device plugin.

    Args:
        api: the cluster. It is asked only if the GPUs decide.
        nodes: the nodes of the cluster.
        needs: what the pods ask of a node.
        problem: what `room_problem` says about them.
        found: a note is added to it if the GPUs cannot be counted.

    Returns:
        The problem in one sentence; empty: there is none.
    """
    others = {name: text for name, text in needs.requests.items() if name != GPU_RESOURCE}
    other_problem = room_problem(nodes, replace(needs, requests=others))
    if other_problem == problem:
        return problem
    listed = object_at(api, DEVICE_CLASSES)  # Kubernetes 1.33 and older have no such list.
    classes = parts(listed, "items") if isinstance(listed, dict) else []
    for each in classes:
        if part(each, "spec").get("extendedResourceName") == GPU_RESOURCE:
            found.notes.append(
                "it was not checked whether the nodes have enough GPUs: this cluster hands them "
                f"out by Dynamic Resource Allocation (DeviceClass {name_of(each)})"
            )
            return other_problem
    offered = (part(node, "status", "allocatable") for node in usable_nodes(nodes, needs))
    has_plugin = any(amount(str(each.get(GPU_RESOURCE) or "0")) for each in offered)
    if has_plugin or OF_NVIDIA not in map(name_of, classes):
        return problem
    return (
        f"gpusPerPod: a pod asks for {needs.requests[GPU_RESOURCE]} {GPU_RESOURCE}, which no node "
        "that it could use offers: this cluster hands out its GPUs by Dynamic Resource Allocation "
        f"(DeviceClass {OF_NVIDIA}), and only to pods with a ResourceClaim. Whoever runs the "
        "cluster can let that class answer such requests, from Kubernetes 1.36 on "
        f"(extendedResourceName: {GPU_RESOURCE}). Or choose nodes with NVIDIA's device plugin"
    )

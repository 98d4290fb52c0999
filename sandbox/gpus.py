"""Lets a cluster offer fake GPUs to its pods, by a real device plugin.

The kubelet, the scheduler and everything that counts `nvidia.com/gpu` treat them as real ones. A
container gets the names of its GPUs in NVIDIA_VISIBLE_DEVICES, but no device.
"""

import json

from sandbox.cluster import Cluster
from sandbox.processes import Component
from sandbox.toolchain import tool_folder
from sandbox.tools.services import GPU_STAND_IN

NAME = "gpu-device-plugin"
RESOURCE = "nvidia.com/gpu"
MOST_GPUS = 64


def offer_gpus(cluster: Cluster, count: int) -> None:
    """Let the first node offer `count` fake GPUs; 0 removes them.

    Pods that already have GPUs keep them.

    Raises:
        ValueError: the number is not possible.
        RuntimeError: the cluster is down, or the device plugin has ended.
        TimeoutError: the kubelet does not take the GPUs.
    """
    if not 0 <= count <= MOST_GPUS:
        raise ValueError(f"{count} GPUs are not possible: use 0 to {MOST_GPUS}")
    node = cluster.node(1)
    if node.link is None:
        raise RuntimeError(f"cluster {cluster.name} is down: run `up` first")
    node.end(NAME)
    if count:
        program = tool_folder(GPU_STAND_IN) / GPU_STAND_IN.programs[0]
        node.start([Component(NAME, (str(program), "device-plugin"))], {"GPUS": str(count)})
    node.wait(f"{count} GPUs", lambda: _missing(cluster, count))


def offered_gpus(cluster: Cluster) -> int:
    """How many GPUs the first node offers to pods."""
    found = json.loads(cluster.run_kubectl("get", "node", cluster.node(1).name, "-o", "json"))
    return int(found["status"]["allocatable"].get(RESOURCE, 0))


def _missing(cluster: Cluster, count: int) -> str | None:
    offered = offered_gpus(cluster)
    return None if offered == count else f"the kubelet offers {offered} GPUs"

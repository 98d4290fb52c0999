"""Functions that ask a cluster about its GPU Operator, and that make pods that use GPUs."""

import json
from typing import Any

from tests.e2e.lab import Lab
from tests.operator.stand_in import operator_image

NAMESPACE = "gpu-operator"


def traces(lab: Lab) -> dict[str, list[str]]:
    """Return what an operator may leave in a cluster, by `crd`, `key` and `object`.

    These are the names of definitions, the keys of nodes' labels and annotations, and the names of
    namespaces and roles.
    """
    kinds = "crd,node,namespace,clusterrole,clusterrolebinding"
    found: dict[str, list[str]] = {"crd": [], "key": [], "object": []}
    for item in json.loads(lab.kubectl("get", kinds, "-o", "json"))["items"]:
        metadata: dict[str, Any] = item["metadata"]
        name: str = metadata["name"]
        if item["kind"] == "Node":
            keys = [*metadata["labels"], *metadata["annotations"]]
            words = ("nvidia.com/", "feature.node.", "nfd.node.")
            found["key"] += [key for key in keys if key.startswith(words)]
        elif item["kind"] == "CustomResourceDefinition":
            found["crd"].append(name)
        elif name.startswith(NAMESPACE):
            found["object"].append(name)
    return {kind: names for kind, names in found.items() if names}


def offered(lab: Lab) -> int:
    """Return how many GPUs the node offers to pods."""
    (node,) = lab.get("node")["items"]
    return int(node["status"]["allocatable"].get("nvidia.com/gpu", 0))


def gpu_pod(lab: Lab, name: str, gpus: int, *arguments: str) -> None:
    """Make a pod that asks for GPUs and runs the stand-in's program."""
    limits = {"limits": {"nvidia.com/gpu": gpus}}
    container = {"name": "user", "image": operator_image(), "args": arguments, "resources": limits}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }
    file = lab.scratch / f"{name}.json"
    file.write_text(json.dumps(pod))
    lab.kubectl("apply", "-f", str(file), namespace="default")


def pod_status(lab: Lab, name: str) -> dict[str, Any]:
    """Return the status of a pod that `gpu_pod` has made."""
    return lab.get("pod", name, namespace="default")["status"]


def unscheduled(lab: Lab, name: str) -> str:
    """Return the scheduler's message about a pod that fits on no node; empty if there is none."""
    conditions = pod_status(lab, name).get("conditions", [])
    return next((c["message"] for c in conditions if c.get("reason") == "Unschedulable"), "")

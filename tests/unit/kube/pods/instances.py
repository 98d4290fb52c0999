"""Makes Node objects of a cloud, for several types of machines."""

from typing import Any

from infra.names import GPU_RESOURCE

Json = dict[str, Any]
EFA = "vpc.amazonaws.com/efa"
TYPE = "node.kubernetes.io/instance-type"


def node(name: str, labels: dict[str, str], offers: dict[str, str], *taints: str) -> Json:
    """Return a Node. `taints` have the form in which kubectl writes them."""
    found: list[Json] = []
    for taint in taints:
        rest, _, effect = taint.rpartition(":")
        key, _, value = rest.partition("=")
        found.append({"key": key, "value": value, "effect": effect})
    allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110", **offers}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": found},
        "status": {"allocatable": allocatable},
    }


def eks(type_: str, gpus: str, efas: str) -> Json:
    """Return a Node of EKS, with the GPUs and EFA devices of its device plugins."""
    labels = {TYPE: type_, "topology.kubernetes.io/zone": "eu-west-1a"}
    return node(f"ip-{type_}", labels, {GPU_RESOURCE: gpus, EFA: efas})


P4D, P5 = eks("p4d.24xlarge", "8", "4"), eks("p5.48xlarge", "8", "32")
P5EN, P6 = eks("p5en.48xlarge", "8", "16"), eks("p6-b200.48xlarge", "8", "8")
SYSTEM = node("system", {TYPE: "m5.large"}, {"cpu": "2", "memory": "8Gi"})

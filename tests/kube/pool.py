"""Manifests of nodes in a pool that belongs to one test, and of pods that ask for these nodes."""

import uuid
from typing import Any

from tests.kube.lab import PROBE_IMAGE, Json

NODES = "/api/v1/nodes"
POOL, ZONE = "test.disttrain.dev/pool", "topology.kubernetes.io/zone"
# Tolerations of the taints that Kubernetes gives to a node without a kubelet, so that these do not
# matter for what is tested.
PASSING = [{"key": f"node.kubernetes.io/{key}", "operator": "Exists"} for key in ("not-ready",)] + [
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists"}
]


def node(pool: str, offers: dict[str, str], *taints: Json, cordoned: bool = False) -> Json:
    """Return the manifest of a node in a pool. `offers` has its allocatable resources."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"n-{uuid.uuid4().hex[:8]}", "labels": {POOL: pool}},
        "spec": {"taints": list(taints), "unschedulable": cordoned},
        "status": {"allocatable": offers, "capacity": offers},
    }


def pod(
    requests: dict[str, str], selector: dict[str, str], *tolerations: Json, **more: Any
) -> Json:
    """Return the manifest of a pod. `more` has further fields of its spec."""
    gpus = {name: text for name, text in requests.items() if "/" in name}
    rest = {name: text for name, text in requests.items() if "/" not in name}
    container = {
        "name": "trainer",
        "image": PROBE_IMAGE,
        "resources": {"requests": rest, **({"limits": gpus} if gpus else {})},
    }
    spec = {
        "containers": [container],
        "nodeSelector": selector,
        "tolerations": [*PASSING, *tolerations],
        "terminationGracePeriodSeconds": 0,
        **more,
    }
    metadata = {"generateName": "p-"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

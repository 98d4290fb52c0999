"""Makes Node objects that are in zones."""

from typing import Any

Json = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"


def node(name: str, **labels: str) -> Json:
    return {
        "metadata": {"name": name, "labels": {ZONE: labels.pop("zone", "a"), **labels}},
        "spec": {},
        "status": {"allocatable": {"cpu": "8", "pods": "110"}},
    }

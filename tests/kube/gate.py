"""Connects tests to the API server through a gate that tests can close and open (tests/gate.py)."""

from pathlib import Path

import yaml

from tests.gate import Gate
from tests.kube.lab import Lab


def through(lab: Lab, gate: Gate, folder: Path) -> Path:
    """Write a kubeconfig that leads through the gate, and return its path."""
    content = yaml.safe_load(lab.cluster.kubeconfig.read_text())
    cluster = content["clusters"][0]["cluster"]
    cluster["server"] = f"https://127.0.0.1:{gate.port}"
    cluster["tls-server-name"] = lab.cluster.node_ip
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path

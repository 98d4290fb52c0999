"""A small chart with the same sections and kinds of values as the GPU Operator's chart."""

import io
import tarfile
from pathlib import Path
from typing import Any

import yaml

ABOUT = {"name": "gpu-operator", "version": "v26.3.3", "appVersion": "v26.3.3"}
NVIDIA = "nvcr.io/nvidia"
VALUES: dict[str, Any] = {
    "nfd": {"enabled": True},
    "cdi": {"enabled": True},
    "sandboxWorkloads": {"enabled": False},
    "operator": {"repository": NVIDIA, "image": "gpu-operator", "cleanupCRD": False},
    "validator": {"repository": NVIDIA, "image": "gpu-operator", "version": ""},
    "driver": {
        "enabled": True,
        "repository": NVIDIA,
        "image": "driver",
        "version": "580.1",
        "manager": {"repository": NVIDIA, "image": "k8s-driver-manager", "version": "v0.9"},
    },
    "toolkit": {
        "enabled": True,
        "repository": f"{NVIDIA}/k8s",
        "image": "container-toolkit",
        "version": "v1.19.0",
    },
    "devicePlugin": {
        "enabled": True,
        "repository": NVIDIA,
        "image": "k8s-device-plugin",
        "version": "v0.19.0",
    },
    "gfd": {
        "enabled": True,
        "repository": NVIDIA,
        "image": "k8s-device-plugin",
        "version": "v0.19.0",
    },
    "dcgm": {"enabled": False, "repository": NVIDIA, "image": "dcgm", "version": "4.4"},
    "dcgmExporter": {
        "enabled": True,
        "repository": NVIDIA,
        "image": "dcgm-exporter",
        "version": f"sha256:{'0' * 64}",
    },
    "vfioManager": {"enabled": True, "repository": NVIDIA, "image": "vfio", "version": "v1"},
    "node-feature-discovery": {"gc": {"enable": True}},
}
DISCOVERY = {"name": "node-feature-discovery", "appVersion": "v0.18.2"}
DISCOVERY_VALUES = {"image": {"repository": "registry.k8s.io/nfd/node-feature-discovery"}}


def write_chart(path: Path, values: dict[str, Any] | None = None) -> Path:
    """Write the packed chart with these values; return its path."""
    files = {
        "Chart.yaml": ABOUT,
        "values.yaml": values or VALUES,
        "charts/node-feature-discovery/Chart.yaml": DISCOVERY,
        "charts/node-feature-discovery/values.yaml": DISCOVERY_VALUES,
    }
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            text = yaml.safe_dump(content).encode()
            entry = tarfile.TarInfo(f"gpu-operator/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
    return path

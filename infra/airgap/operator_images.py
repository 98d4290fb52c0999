"""Computes from a GPU Operator chart's values which images a cluster pulls for it.

The chart's templates do not name the images of the operator's workloads. The values name them, in a
section for each workload, which also has the key `enabled`. See the file
deployments/gpu-operator/values.yaml in the repository NVIDIA/gpu-operator.
"""

import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml

ALWAYS = ("operator", "validator")
# These run only with the value `sandboxWorkloads.enabled`, for virtual machines. It is never set.
FOR_VIRTUAL_MACHINES = (
    *("vgpuManager", "vgpuDeviceManager", "vfioManager", "sandboxDevicePlugin"),
    *("kataManager", "kataSandboxDevicePlugin", "ccManager"),
)
DISCOVERY = "node-feature-discovery"


def operator_images(chart: Path, *, toolkit: bool, dcgm_exporter: bool) -> list[str]:
    """Return the full names of the images, sorted, without the driver, which the host must have.

    Args:
        chart: the packed chart.
        toolkit: whether the operator installs the container toolkit.
        dcgm_exporter: whether the operator runs the exporter of GPU metrics.

    Raises:
        ValueError: the file is not a chart of the GPU Operator.
    """
    try:
        with tarfile.open(chart) as archive:
            about, values = (_member(archive, name) for name in ("Chart.yaml", "values.yaml"))
            nested = f"charts/{DISCOVERY}"
            nested_about = _member(archive, f"{nested}/Chart.yaml")
            nested_values = _member(archive, f"{nested}/values.yaml")
    except (tarfile.TarError, EOFError, zlib.error, KeyError, yaml.YAMLError) as error:
        raise ValueError(f"{chart} is not a chart of the GPU Operator: {error}") from error
    enabled = {"driver": False, "toolkit": toolkit, "dcgmExporter": dcgm_exporter}
    images = images_of_values(values, str(about["appVersion"]), enabled)
    if _section(values, "nfd").get("enabled", True):
        own = _section(_section(values, DISCOVERY), "image")
        image = {**_section(nested_values, "image"), **own}
        images.add(f"{image['repository']}:{image.get('tag') or nested_about['appVersion']}")
    return sorted(images)


def images_of_values(
    values: Mapping[str, Any], app_version: str, enabled: Mapping[str, bool]
) -> set[str]:
    """Return the images in the operator's own sections. `enabled` overrides the chart's values."""
    images: set[str] = set()
    for name in values:
        section = _section(values, name)
        wanted = name in ALWAYS or enabled.get(name, section.get("enabled") is True)
        if section.get("image") and wanted and name not in FOR_VIRTUAL_MACHINES:
            images.add(_image(section, app_version))
    if start := _section(_section(values, "operator"), "initContainer"):  # in older charts
        images.add(_image(start, app_version))
    return images


def _image(section: Mapping[str, Any], app_version: str) -> str:
    name = "/".join(part for part in (section.get("repository"), section["image"]) if part)
    version = str(section.get("version") or app_version)
    return f"{name}@{version}" if version.startswith("sha256:") else f"{name}:{version}"


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = values.get(name)
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}


def _member(archive: tarfile.TarFile, name: str) -> dict[str, Any]:
    file = archive.extractfile(f"gpu-operator/{name}")
    if file is None:
        raise KeyError(f"{name} is not a file")
    with file:
        return cast(dict[str, Any], yaml.safe_load(file) or {})

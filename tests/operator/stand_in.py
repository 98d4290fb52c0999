"""Makes the stand-in for NVIDIA's GPU Operator: the packed chart, and the image for a cluster.

README.md in this folder says what is real and what is not.
"""

import io
import tarfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from sandbox.cache import content_key
from sandbox.image_archive import image_archive
from sandbox.toolchain import tool_folder
from sandbox.tools.services import GPU_STAND_IN
from tests.e2e.lab import Lab

HERE = Path(__file__).parent
VERSION = "v26.3.3"  # the default of gpuOperatorVersion
GPUS = 3
PARTS = ("operator", "validator", "devicePlugin")


def operator_program() -> Path:
    """Return the path of the stand-in's static program, which is built the first time."""
    return tool_folder(GPU_STAND_IN) / GPU_STAND_IN.programs[0]


@cache
def operator_image() -> str:
    """Return the name of the image, whose tag changes with the program."""
    values = yaml.safe_load((HERE / "chart" / "values.yaml").read_text())["operator"]
    # A word stands before the key, because YAML would read a key such as 12e4 as a number.
    return f"{values['repository']}/{values['image']}:build-{content_key(operator_program())}"


def import_operator_image(lab: Lab) -> None:
    """Put the image into the containerd of this lab's cluster."""
    archive = lab.scratch / "gpu-operator-image.tar"
    archive.write_bytes(image_archive(operator_program(), operator_image()))
    lab.ctr("images", "import", str(archive))
    archive.unlink()


def operator_chart(
    folder: Path,
    *,
    version: str = VERSION,
    gpus: int = GPUS,
    reconcile_error: str = "",
    device_plugin: str = "",
) -> Path:
    """Pack the chart for the setting `gpuOperatorChart`, and return its path.

    Args:
        folder: the folder for the file.
        version: the version of the chart, as in the setting gpuOperatorVersion.
        gpus: how many GPUs each node offers.
        reconcile_error: the error that the operator reports; empty: it reports none.
        device_plugin: the tag of the device plugin's image; empty: that of the imported image.
    """
    tag = operator_image().rpartition(":")[2]
    about = _read("Chart.yaml")
    values = _read("values.yaml")
    for part in PARTS:
        values[part]["version"] = tag
    values["devicePlugin"]["version"] = device_plugin or tag
    values["standIn"] = {"gpus": gpus, "reconcileError": reconcile_error}
    about["version"] = about["appVersion"] = version
    changed = {"Chart.yaml": about, "values.yaml": values}
    packed = folder / f"gpu-operator-{version}.tgz"
    packed.parent.mkdir(parents=True, exist_ok=True)
    packed.write_bytes(_pack(changed))
    return packed


def _read(name: str) -> dict[str, Any]:
    return yaml.safe_load((HERE / "chart" / name).read_text())


def _pack(changed: Mapping[str, Mapping[str, Any]]) -> bytes:
    chart = HERE / "chart"
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for file in sorted(path for path in chart.rglob("*") if path.is_file()):
            name = file.relative_to(chart).as_posix()
            text = yaml.safe_dump(changed[name]) if name in changed else file.read_text()
            entry = tarfile.TarInfo(f"gpu-operator/{name}")
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    return archive.getvalue()

"""Reads where the chart of NVIDIA's GPU Operator comes from: the setting `gpuOperatorChart`."""

import re
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from infra.kube.api_server.access import line_and_column
from infra.settings.local_path import local_path, why_unreadable
from infra.settings.reader import Reader
from infra.settings.secret import is_url
from infra.settings.setting_error import SettingError

CHART = "gpu-operator"
NVIDIA_REPOSITORY = "https://helm.ngc.nvidia.com/nvidia"
CHART_ERRORS = (
    *(OSError, EOFError, KeyError, ValueError),
    *(tarfile.TarError, zlib.error, yaml.YAMLError),
)
"""What `chart_description` raises if there is no chart that can be read."""
_KEY = "gpuOperatorChart"
_DIGEST = r"@sha256:[^/@]*"
_HINT = (
    "Set nothing for NVIDIA's repository, the address of another chart repository (https://...), "
    "a chart in a registry (oci://...), or a path on this machine: a packed chart (.tgz) or its "
    "folder"
)


@dataclass(frozen=True)
class ChartSource:
    """The place of a chart, in the form that Helm takes.

    Args:
        chart: name of the chart in `repository`, a path on this machine, or an address oci://.
        repository: address of the chart repository; empty if `chart` is a path or an address.
    """

    chart: str = CHART
    repository: str = NVIDIA_REPOSITORY

    @property
    def file(self) -> Path | None:
        """The packed chart or its folder; None if the chart is not on this machine."""
        is_path = not self.repository and not self.chart.startswith("oci://")
        return Path(self.chart) if is_path else None


def read_chart_source(reader: Reader, version: str) -> ChartSource:
    """Read where the chart comes from.

    Args:
        reader: gives the value and collects the problems with it.
        version: the setting `gpuOperatorVersion`. A chart on this machine must have this version,
            because the values for the chart are chosen by the setting.
    """
    text = reader.text(_KEY)
    if not text:
        return ChartSource()
    scheme = re.match(r"(\w+)://", text)
    if scheme is None:
        path = local_path(text)
        if problem := chart_problem(path, version):
            reader.problem(_KEY, text, problem.reason, problem.hint)
        return ChartSource(str(path), "")
    address, digest = _without_digest(text)
    if "@" in address:
        reason = "its user and password would be in plain text in Pulumi's state"
        hint = "Set an address without them, or the path of a chart"
        reader.problem(_KEY, text, reason, hint)
    elif digest and re.fullmatch(r"@sha256:[0-9a-f]{64}", digest) is None:
        reason = "its digest is not sha256: and 64 hexadecimal digits"
        reader.problem(_KEY, text, reason, "Write it as the registry names it")
    elif re.search(r"\s", text) or not is_url(address):
        reader.problem(_KEY, text, "it is not an address: it has no host, or a space in it", _HINT)
    elif scheme[1] == "oci":
        return ChartSource(text, "")
    elif scheme[1] in ("http", "https"):
        return ChartSource(CHART, text.rstrip("/"))
    else:
        reader.problem(_KEY, text, f"Helm takes no chart from {scheme[1]}://", _HINT)
    return ChartSource()


def _without_digest(text: str) -> tuple[str, str]:
    """Return the address of a chart, and its digest with the @ before it; empty: it has none."""
    found = re.search(_DIGEST + "$", text) if text.startswith("oci://") else None
    return (text[: found.start()], found[0]) if found else (text, "")


def chart_problem(path: Path, version: str) -> SettingError | None:
    """Why the chart at this path cannot be used; None if it is the chart of this version."""
    try:
        about = chart_description(path)
    except CHART_ERRORS as error:
        return SettingError(f"no chart can be read there ({why_no_chart(error)})", _HINT)
    if about.get("name") != CHART:
        reason = f"the chart there is named {about.get('name')!r}"
        return SettingError(reason, f"Set the path of the chart {CHART}")
    if about.get("version") != version:
        found = about.get("version")
        return SettingError(
            f"the chart there has version {found}, and gpuOperatorVersion is {version}",
            f"Set gpuOperatorVersion to {found}, or take the other chart",
        )
    return None


def why_no_chart(error: Exception) -> str:
    """Return in words why `chart_description` has raised one of CHART_ERRORS."""
    if isinstance(error, yaml.YAMLError):
        return f"its Chart.yaml is no YAML{line_and_column(error)}"
    if isinstance(error, KeyError):
        return "it has no Chart.yaml"
    if isinstance(error, UnicodeDecodeError) or (isinstance(error, OSError) and error.strerror):
        return why_unreadable(error)
    return str(error) if type(error) is ValueError else "it is no packed chart, or it is damaged"


def chart_description(path: Path, chart: str = CHART) -> dict[str, Any]:
    """Return the content of a chart's Chart.yaml.

    Args:
        path: the packed chart or its folder.
        chart: name of the chart, which is also the name of the folder inside a packed chart.

    Raises:
        OSError, KeyError, tarfile.TarError, yaml.YAMLError: there is no chart that can be read.
        EOFError: the packed chart is cut off.
        ValueError: Chart.yaml is not a mapping.
    """
    if path.is_dir():
        content: object = yaml.safe_load((path / "Chart.yaml").read_text())
    else:
        with tarfile.open(path) as archive:
            file = archive.extractfile(f"{chart}/Chart.yaml")
            content = yaml.safe_load(file.read()) if file else None
    if not isinstance(content, dict):
        raise ValueError("its Chart.yaml is not a mapping")
    return cast(dict[str, Any], content)

"""What the setting `gpuOperatorChart` accepts, and with which messages it refuses the rest."""

import gzip
import tarfile
from pathlib import Path

import pytest
import yaml
from pulumi import RunError

from infra.kinds import KINDS
from infra.settings import parse_settings
from infra.settings.gpu_chart import NVIDIA_REPOSITORY, ChartSource
from tests.unit.stacks import raw_settings

VERSION = "v26.3.3"


def source(chart: str, version: str = VERSION) -> ChartSource:
    """Return where the chart comes from with this setting."""
    changes = {"gpuOperatorChart": chart, "gpuOperatorVersion": version}
    settings = parse_settings(raw_settings("dev", changes), (), "dev", KINDS)
    operator = settings.own_platform.gpu_operator
    assert operator
    return operator.chart


def refusal(chart: str, version: str = VERSION) -> str:
    """Return the error with which this setting is refused."""
    with pytest.raises(RunError) as refused:
        source(chart, version)
    return str(refused.value)


def chart_folder(folder: Path, name: str = "gpu-operator", version: str = VERSION) -> Path:
    """Make the folder of a chart with this name and version; return it."""
    folder.mkdir()
    about = {"apiVersion": "v2", "name": name, "version": version}
    (folder / "Chart.yaml").write_text(yaml.safe_dump(about))
    return folder


def test_chart_comes_from_nvidias_repository_by_default() -> None:
    assert source("") == ChartSource("gpu-operator", NVIDIA_REPOSITORY)
    assert source("").file is None


def test_mirror_of_the_repository_is_taken() -> None:
    """The address of a mirror of NVIDIA's repository is accepted."""
    mirror = source("https://charts.corp.example/nvidia/")
    assert mirror == ChartSource("gpu-operator", "https://charts.corp.example/nvidia")
    assert mirror.file is None


def test_chart_in_a_registry_is_taken() -> None:
    """The address of a chart in a registry (`oci://`) is accepted."""
    address = "oci://registry.corp.example/charts/gpu-operator"
    assert source(address) == ChartSource(address, "")
    assert source(address).file is None


def test_chart_with_a_digest_is_taken() -> None:
    """A chart can have a digest, whose @ does not count as the sign of a login. A wrong digest is
    called so.
    """
    address = "oci://registry.corp.example/charts/gpu-operator"
    pinned = f"{address}@sha256:{64 * 'a'}"
    assert source(pinned) == ChartSource(pinned, "")
    said = refusal(f"{address}@sha256:abc")
    assert f"'{address}@sha256:abc' cannot be used: its digest is not sha256: and 64" in said


def test_packed_chart_and_its_folder_are_taken(tmp_path: Path) -> None:
    """A chart on this machine can be a folder or a packed file."""
    folder = chart_folder(tmp_path / "gpu-operator")
    packed = tmp_path / "chart.tgz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(folder, "gpu-operator")
    for path in (folder, packed):
        assert source(str(path)) == ChartSource(str(path), "")
        assert source(str(path)).file == path


def test_chart_of_another_version_is_refused(tmp_path: Path) -> None:
    """A chart of another version than `gpuOperatorVersion` is refused, because the values would be
    for the version of the setting.
    """
    folder = chart_folder(tmp_path / "chart", version="v25.3.4")
    said = refusal(str(folder))
    assert f"gpuOperatorChart: '{folder}' cannot be used" in said
    assert "the chart there has version v25.3.4, and gpuOperatorVersion is v26.3.3" in said
    assert source(str(folder), "v25.3.4").file == folder


def test_chart_of_something_else_is_refused(tmp_path: Path) -> None:
    said = refusal(str(chart_folder(tmp_path / "chart", name="network-operator")))
    assert "the chart there is named 'network-operator'" in said


@pytest.mark.parametrize(
    "content",
    [None, b"no archive", b"", gzip.compress(b"x" * 5000)[:20]],
    ids=["missing", "no archive", "empty", "cut off"],  # else the ids had gzip's time
)
def test_path_without_a_chart_is_refused(content: bytes | None, tmp_path: Path) -> None:
    """A path without a readable chart is refused with what can be set."""
    path = tmp_path / "chart.tgz"
    if content is not None:
        path.write_bytes(content)
    said = refusal(str(path))
    assert f"gpuOperatorChart: '{path}' cannot be used: no chart can be read there" in said
    assert "Set nothing for NVIDIA's repository" in said


def test_broken_packed_chart_is_refused(tmp_path: Path) -> None:
    """A packed chart whose download broke off is refused with a message that names the setting, and
    not with a traceback.
    """
    folder, path = chart_folder(tmp_path / "gpu-operator"), tmp_path / "chart.tgz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, "gpu-operator")
    path.write_bytes(path.read_bytes()[:-40])
    assert f"gpuOperatorChart: '{path}' cannot be used: no chart can be read" in refusal(str(path))


def test_address_with_a_password_is_refused_and_not_shown() -> None:
    """An address with user and password is refused, and the password is not shown."""
    said = refusal("https://me:hunter7@charts.corp.example/nvidia")
    assert "its user and password would be in plain text" in said
    assert "hunter7" not in said
    for login in ("me:hunter7", "me:hun/ter7", "hunter7"):
        said = refusal(f"oci://{login}@registry.example/charts/gpu-operator@sha256:{64 * 'a'}")
        assert "its user and password would be in plain text" in said
        assert login not in said
    assert "Helm takes no chart from ftp://" in refusal("ftp://charts.corp.example")

"""Which images the GPU Operator needs in a bundle, by the values of its chart and the settings."""

from pathlib import Path
from typing import Any

import pytest

from infra.airgap.operator_images import images_of_values, operator_images
from tests.unit.airgap.charts import NVIDIA, VALUES, write_chart

PLUGIN = f"{NVIDIA}/k8s-device-plugin:v0.19.0"
OPERATOR = f"{NVIDIA}/gpu-operator:v26.3.3"
TOOLKIT = f"{NVIDIA}/k8s/container-toolkit:v1.19.0"
EXPORTER = f"{NVIDIA}/dcgm-exporter@sha256:{'0' * 64}"
DISCOVERY = "registry.k8s.io/nfd/node-feature-discovery:v0.18.2"


@pytest.mark.parametrize(
    ("toolkit", "exporter", "more"),
    [(True, True, {TOOLKIT, EXPORTER}), (False, True, {EXPORTER}), (True, False, {TOOLKIT})],
)
def test_images_follow_from_the_values_and_the_settings(
    toolkit: bool, exporter: bool, more: set[str], tmp_path: Path
) -> None:
    chart = write_chart(tmp_path / "chart.tgz")
    images = operator_images(chart, toolkit=toolkit, dcgm_exporter=exporter)
    assert set(images) == {OPERATOR, PLUGIN, DISCOVERY} | more
    assert images == sorted(images)


def test_image_of_older_charts_that_waits_for_the_driver_is_one_of_them() -> None:
    """The image of the init container in older charts, which waits for the driver, is one of the
    images.
    """
    start = {"repository": NVIDIA, "image": "cuda", "version": "12.5.1-base-ubi8"}
    operator: dict[str, Any] = {**VALUES["operator"], "initContainer": start}
    images = images_of_values({"operator": operator}, "v24.9.2", {})
    assert images == {f"{NVIDIA}/gpu-operator:v24.9.2", f"{NVIDIA}/cuda:12.5.1-base-ubi8"}


def test_cluster_that_finds_its_features_otherwise_needs_no_image_for_that(tmp_path: Path) -> None:
    """Without the chart's own node feature discovery, its image is not needed."""
    chart = write_chart(tmp_path / "chart.tgz", {**VALUES, "nfd": {"enabled": False}})
    assert DISCOVERY not in operator_images(chart, toolkit=True, dcgm_exporter=True)


def test_broken_chart_is_refused(tmp_path: Path) -> None:
    """A chart whose download broke off ends `make bundle` with a message that names the file."""
    chart = write_chart(tmp_path / "chart.tgz")
    chart.write_bytes(chart.read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"chart\.tgz is not a chart of the GPU Operator"):
        operator_images(chart, toolkit=True, dcgm_exporter=True)


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "chart.tgz").write_text("no chart")
    with pytest.raises(ValueError, match=r"chart\.tgz is not a chart of the GPU Operator"):
        operator_images(tmp_path / "chart.tgz", toolkit=True, dcgm_exporter=True)

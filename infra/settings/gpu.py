"""Reads the settings of NVIDIA's GPU Operator: its version, its parts, and how GPUs are shared."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.settings.cluster import ClusterSettings
from infra.settings.devices import Devices
from infra.settings.gpu_chart import ChartSource, read_chart_source
from infra.settings.gpu_names import known_model
from infra.settings.gpu_regime import (
    FIRST_NRI_CHART,
    REGIMES,
    HostParts,
    Regime,
    chart_version,
    choose_regime,
    k3s_version,
    refuse_chart,
    shown,
)
from infra.settings.gpu_sharing import MOST_SLICES, Sharing, sharing_problems, without_operator
from infra.settings.gpu_values import read_gpu_values
from infra.settings.reader import Reader
from infra.settings.setting_error import SettingError


@dataclass(frozen=True)
class GpuOperatorSettings:
    """NVIDIA's GPU Operator: its chart, which parts it installs, and how GPUs are shared.

    `values` are the user's own values for the chart, in addition to those of the other settings.
    """

    version: str
    chart: ChartSource
    driver: bool
    toolkit: bool
    regime: Regime
    sharing: Sharing
    dcgm_exporter: bool
    timeout_seconds: int
    values: Mapping[str, Any]


def read_gpu_operator(
    reader: Reader, cluster: ClusterSettings, devices: Devices
) -> GpuOperatorSettings | None:
    """Read the operator's settings; None if this stack does not install the operator."""
    wanted = _is_wanted(reader, cluster, devices)
    version = reader.text("gpuOperatorVersion")
    parts = HostParts(reader.boolean("gpuOperatorDriver"), reader.boolean("gpuOperatorToolkit"))
    regime = reader.choice("gpuOperatorRegime", ("auto", *REGIMES))
    sharing = Sharing(
        reader.integer("gpuTimeSlices", at_least=1, at_most=MOST_SLICES), reader.text("migProfile")
    )
    model = known_model(reader.text("gpuModel"))
    if devices.accelerator == "gpu":
        for problem in sharing_problems(sharing, model):
            reader.problem(*problem)
    chosen: Regime = "cdi"
    chart = chart_version(version)
    # An adopted k3s may have another version than the setting says, and it is not known here.
    k3s = k3s_version(cluster.k3s.version) if cluster.installs_k3s else ()
    if not reader.are_right("gpuOperatorVersion"):
        pass  # Its problem is noted already.
    elif chart is None:
        form = "it is not the tag of a chart"
        reader.problem(
            "gpuOperatorVersion", version, form, f"Write it like {shown(FIRST_NRI_CHART)}"
        )
    elif refused := refuse_chart(chart):
        reader.problem("gpuOperatorVersion", version, refused.reason, refused.hint)
    elif wanted:
        try:
            chosen = choose_regime(regime, chart, k3s, parts)
        except SettingError as refused:
            cause = _cause(regime, version=cluster.k3s.version, toolkit=parts.toolkit)
            reader.problem(*cause, refused.reason, refused.hint)
    if devices.accelerator == "gpu" and not wanted:
        for problem in without_operator(sharing):
            reader.problem(*problem)
    source = read_chart_source(reader, version)
    settings = GpuOperatorSettings(
        version,
        source,
        parts.driver,
        parts.toolkit,
        chosen,
        sharing,
        reader.boolean("gpuOperatorDcgmExporter"),
        reader.integer("gpuOperatorTimeoutSeconds", at_least=60),
        read_gpu_values(reader, version, source, is_wanted=wanted),
    )
    return settings if wanted else None


def _cause(regime: str, *, version: str, toolkit: bool) -> tuple[str, str]:
    """Return the setting because of which no regime works, and its value.

    Without a toolkit of the operator, `auto` only fails if the operator installs the driver, and
    with one only because of the version of k3s.
    """
    if regime != "auto":
        return "gpuOperatorRegime", regime
    return ("k3sVersion", version) if toolkit else ("gpuOperatorDriver", "true")


def _is_wanted(reader: Reader, cluster: ClusterSettings, devices: Devices) -> bool:
    """Whether the operator is installed. With `auto`, it is only with `cluster: k3s`.

    An existing cluster may have an operator of its own.
    """
    choice = reader.choice("gpuOperator", ("auto", "true", "false"))
    on_gpu = devices.accelerator == "gpu"
    if choice == "true" and not on_gpu:
        reader.problem(
            "gpuOperator",
            choice,
            "accelerator is cpu, and the operator is for GPUs",
            "Set auto or false, or accelerator: gpu",
        )
    return on_gpu and (choice == "true" or (choice == "auto" and cluster.kind == "k3s"))

"""Reads further values for the chart of the GPU Operator: the setting `gpuOperatorValues`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from infra.settings.gpu_chart import CHART, NVIDIA_REPOSITORY, ChartSource
from infra.settings.gpu_chart_keys import chart_keys
from infra.settings.gpu_regime import chart_version
from infra.settings.reader import Reader
from infra.settings.similar_names import did_you_mean

KEY = "gpuOperatorValues"
# The values that this program computes, and what sets each of them.
# infra/platform/gpu_operator_values.py sets these and no others.
COMPUTED = {
    "driver.enabled": "the setting gpuOperatorDriver",
    "driver.env": "the settings of the proxy",
    "driver.secretEnv": "the settings of the proxy",
    "driver.certConfig": "the setting caBundle",
    "toolkit.enabled": "the setting gpuOperatorToolkit",
    "toolkit.env": "the setting gpuOperatorRegime",
    "cdi": "the setting gpuOperatorRegime",
    "dcgmExporter.enabled": "the setting gpuOperatorDcgmExporter",
    "devicePlugin.config": "the setting gpuTimeSlices",
    "mig": "the setting migProfile",
    "daemonsets.tolerations": "the taints of nodes",
    "node-feature-discovery.worker.tolerations": "the taints of nodes",
    "node-feature-discovery.postDeleteCleanup": "this program, which cleans up itself",
}


def read_gpu_values(
    reader: Reader, version: str, source: ChartSource, *, is_wanted: bool
) -> Mapping[str, Any]:
    """Read the further values. They are in none of the paths in `COMPUTED`.

    Args:
        reader: gives the value and collects the problems with it.
        version: the setting `gpuOperatorVersion`.
        source: where the chart comes from.
        is_wanted: whether this stack installs the operator.
    """
    values = reader.mapping(KEY)
    if not values:
        return {}
    remove = f"remove all of it (`pulumi config rm {KEY}`)"
    if reader.refuse_encrypted(
        KEY,
        "it would be in the operator's objects",
        f"Make a Secret in the namespace gpu-operator and name it in {KEY}; {remove} before that",
    ):
        return {}
    if not is_wanted:
        reader.problem(
            KEY,
            values,
            "this stack does not install the GPU Operator",
            f"Set gpuOperator: true, or {remove}",
        )
    _refuse_points(reader, values)
    chart = chart_version(version) if reader.are_right("gpuOperatorVersion") else None
    if chart and is_wanted and source.repository == NVIDIA_REPOSITORY:
        _refuse_unknown(reader, values, version, chart_keys(chart))
    for path, value in _leaves({key: each for key, each in values.items() if "." not in key}):
        # A value that leads to several computed ones, such as `driver: null`, has one problem.
        if computed := next((each for each in COMPUTED if _overlap(path, each)), None):
            reader.problem(
                f"{KEY}.{path}",
                value,
                f"{computed} is set by {COMPUTED[computed]}",
                f"Remove it: `pulumi config rm --path {KEY}.{path}`",
            )
    return values


def _refuse_points(reader: Reader, values: Mapping[str, Any]) -> None:
    """Refuse names such as `driver.version`, which are written so only behind Helm's `--set`.

    Keys further inside may have a point in them, such as the labels of a node selector.
    """
    for name in sorted(name for name in values if "." in name):
        reader.problem(
            f"{KEY}.{name}",
            values[name],
            "Helm looks for no value with a point in its name",
            "Write it as keys inside each other: `pulumi config set --path "
            f"{KEY}.{name} VALUE`, and remove this one: `pulumi config rm --path "
            f"'{KEY}[\"{name}\"]'`",
        )


def _refuse_unknown(
    reader: Reader, values: Mapping[str, Any], version: str, known: Sequence[str]
) -> None:
    """Refuse keys that NVIDIA's chart of this version does not have; none if `known` is empty."""
    for name in sorted(name for name in values if known and name not in known and "." not in name):
        reader.problem(
            f"{KEY}.{name}",
            values[name],
            f"the chart {version} has no such key{did_you_mean(name, known)}, and Helm ignores it",
            f"Correct it, or remove it: `pulumi config rm --path {KEY}.{name}`. The keys are shown "
            f"by `helm show values {CHART} --repo {NVIDIA_REPOSITORY} --version {version}`",
        )


def _leaves(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, object]]:
    """Yield the path and the content of each value that is no mapping with something in it."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(cast(Mapping[str, Any], value), f"{before}{key}.")
        else:
            yield f"{before}{key}", cast(object, value)


def _overlap(one: str, other: str) -> bool:
    """Whether one path is the other one, or leads to it."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")

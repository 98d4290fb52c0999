"""Reads which controllers the platform installs into its cluster, and where they come from."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.settings.airgap import BundleSettings
from infra.settings.gpu_chart import CHART_ERRORS, chart_description, why_no_chart
from infra.settings.kinds import ControllerChoice
from infra.settings.local_path import local_path
from infra.settings.monitoring import Monitoring
from infra.settings.reader import Reader
from infra.settings.similar_names import did_you_mean

KEY = "controllers"
CHARTS = "controllerCharts"
MANIFESTS = "controllerManifests"
PROMETHEUS = "kube-prometheus-stack"
KUEUE = "kueue"
_PINNED = r"oci://[^\s@/]+/[^\s@]+@sha256:[0-9a-f]{64}"
_HINT = (
    "Set a path on this machine (a packed chart or its folder), or a chart in a registry with its "
    "digest: oci://registry.example/charts/NAME@sha256:DIGEST"
)


@dataclass(frozen=True)
class ControllerSettings:
    """A controller to install.

    Args:
        name: name of the controller's kind in `infra/controllers/`.
        chart: path or address of its chart; empty: the chart comes from the place that the kind
            names.
        manifests: folder with its manifests; empty: they are downloaded from their project.
    """

    name: str
    chart: str = ""
    manifests: str = ""


def read_controllers(
    reader: Reader,
    kinds: Mapping[str, ControllerChoice],
    namespace: str,
    bundle: BundleSettings | None,
    monitoring: Monitoring,
) -> tuple[ControllerSettings, ...]:
    """Read which controllers are installed. The result has the order of the registry.

    Args:
        reader: gives the values and collects the problems with them.
        kinds: the registry of controllers.
        namespace: the platform's namespace, in which no controller may be installed.
        bundle: the bundle of a stack without internet, which holds no controllers; None: there is
            none.
        monitoring: `install` adds the chart with Prometheus and its operator.
    """
    names = _names(reader, kinds)
    if monitoring == "install":
        names.append(PROMETHEUS)
    charts, manifests = _charts(reader, kinds, names), _manifests(reader, kinds, names)
    for name in names:
        kind = kinds[name]
        without = "set monitoring to existing" if kind.chosen_by else f"take {name} out of {KEY}"
        if kind.namespace == namespace:
            reader.problem(
                "namespace",
                namespace,
                f"it is that of the controller {name}, which is installed there ({kind.setting})",
                "Set another name",
            )
        if bundle and name not in charts and name not in manifests:
            what = "manifests" if kind.files else "chart"
            key = MANIFESTS if kind.files else CHARTS
            reader.problem(
                *(kind.chosen_by or (KEY, name)),
                f"the folder of the setting bundle has neither its {what} nor its image",
                f"Set {key}.{name} to its {what}, and let the nodes have its image from a "
                f"registry that they reach; or install it yourself, and {without}",
            )
    return tuple(
        ControllerSettings(name, charts.get(name, ""), manifests.get(name, ""))
        for name in kinds
        if name in names
    )


def _names(reader: Reader, kinds: Mapping[str, ControllerChoice]) -> list[str]:
    """Read the names in `controllers`. A controller that another setting chooses is refused."""
    found, known = list[str](), [name for name, kind in kinds.items() if not kind.chosen_by]
    for index, value in enumerate(reader.sequence(KEY)):
        where = f"{KEY}[{index}]"
        if not isinstance(value, str):
            reader.problem(where, value, "it is not a name", f"Set one of {', '.join(known)}")
        elif value in kinds and value not in known:
            hint = f"Take it out of the list, and set {kinds[value].setting}"
            reader.problem(where, value, "another setting stands for it", hint)
        elif value not in known:
            reason = "this program installs no controller of that name"
            hint = f"Set one of {', '.join(known)}{did_you_mean(value, known)}"
            reader.problem(where, value, reason, hint)
        elif value in found:
            reader.problem(where, value, "it is in the list twice", "Take one of the two away")
        else:
            found.append(value)
    return found


def _charts(
    reader: Reader, kinds: Mapping[str, ControllerChoice], names: Iterable[str]
) -> dict[str, str]:
    """Read paths and addresses of charts, by the names of their controllers."""
    found = dict[str, str]()
    for name, value in reader.mapping(CHARTS).items():
        where, text = f"{CHARTS}.{name}", str(value)
        if not _is_wanted(reader, kinds, names, where, name, value):
            continue
        if not isinstance(value, str):
            reader.problem(where, value, "it is not a text", _HINT)
        elif kinds[name].files:
            hint = f"Set {MANIFESTS}.{name} to a folder with its files"
            reader.problem(where, text, f"{name} is installed by manifests, not by a chart", hint)
        elif "://" in text:
            if re.fullmatch(_PINNED, text) is None:
                reason = "it is not the address of a chart in a registry with its digest"
                reader.problem(where, text, reason, _HINT)
            found[name] = text
        else:
            path = local_path(text)
            if reason := _chart_problem(path, name, kinds[name].version):
                reader.problem(where, text, reason, _HINT)
            found[name] = str(path)
    return found


def _manifests(
    reader: Reader, kinds: Mapping[str, ControllerChoice], names: Iterable[str]
) -> dict[str, str]:
    """Read folders with manifests, by the names of their controllers.

    Only the files' existence is checked here. Their content is read later.
    """
    found = dict[str, str]()
    for name, value in reader.mapping(MANIFESTS).items():
        where, text = f"{MANIFESTS}.{name}", str(value)
        if not _is_wanted(reader, kinds, names, where, name, value):
            continue
        if not isinstance(value, str):
            hint = "Set the path of a folder on this machine with its files (docs/clusters.md)"
            reader.problem(where, value, "it is not a text", hint)
            continue
        path = local_path(text)
        missing = [file for file in kinds[name].files if not (path / file).is_file()]
        if not kinds[name].files:
            hint = f"Set {CHARTS}.{name} to its chart"
            reader.problem(where, text, f"{name} is installed by a chart, not by manifests", hint)
        elif missing:
            reason = f"it has no file {', '.join(missing)}"
            hint = "Set a folder on this machine that has all of its files (docs/clusters.md)"
            reader.problem(where, text, reason, hint)
        found[name] = str(path)
    return found


def _is_wanted(
    reader: Reader,
    kinds: Mapping[str, ControllerChoice],
    names: Iterable[str],
    where: str,
    name: str,
    value: object,
) -> bool:
    """Whether the controller is installed. If it is not, a problem is noted."""
    if name in names:
        return True
    hint = f"Set one of {', '.join(kinds)}{did_you_mean(name, kinds)}"
    if name in kinds:
        chosen = kinds[name].chosen_by
        hint = f"Set {kinds[name].setting}" if chosen else f"Add {name} to {KEY}"
    reader.problem(where, value, f"{name} is not among {KEY}", hint)
    return False


def _chart_problem(path: Path, name: str, version: str) -> str:
    """Why the chart at this path cannot be used; empty if it is the chart of this version."""
    try:
        about = chart_description(path, name)
    except CHART_ERRORS as error:
        return f"no chart can be read there ({why_no_chart(error)})"
    if (about.get("name"), about.get("version")) != (name, version):
        return (
            f"the chart there is {about.get('name')} {about.get('version')}, and this program "
            f"knows {name} {version}"
        )
    return ""

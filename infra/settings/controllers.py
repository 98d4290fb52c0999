"""Controllers that the platform installs into its cluster."""

import difflib
import re
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from infra.settings.airgap import BundleSettings
from infra.settings.gpu_chart import chart_description
from infra.settings.kinds import ControllerChoice
from infra.settings.monitoring import Monitoring
from infra.settings.reader import Reader

KEY = "controllers"
CHARTS = "controllerCharts"
PROMETHEUS = "kube-prometheus-stack"
_PINNED = r"oci://[^\s@/]+/[^\s@]+@sha256:[0-9a-f]{64}"
_HINT = (
    "Set a path on this machine (a packed chart or its folder), or a chart in a registry with its "
    "digest: oci://registry.example/charts/NAME@sha256:DIGEST"
)


@dataclass(frozen=True)
class ControllerSettings:
    """A controller to install.

    Args:
        name: of its kind in `infra/controllers/`.
        chart: where its chart comes from instead of the kind's own place; empty: from there.
    """

    name: str
    chart: str = ""


def read_controllers(
    reader: Reader,
    kinds: Mapping[str, ControllerChoice],
    namespace: str,
    bundle: BundleSettings | None,
    monitoring: Monitoring,
) -> tuple[ControllerSettings, ...]:
    """Read which controllers are installed, in the order of their registry.

    Args:
        reader: gives the values and collects what is wrong with them.
        kinds: the controllers that there are.
        namespace: of the platform.
        bundle: what a stack without internet is made from, which has no controllers in it.
        monitoring: whether Prometheus and its operator are among them.
    """
    names = _names(reader, kinds)
    if monitoring == "install":
        names.append(PROMETHEUS)
    charts = _charts(reader, kinds, names)
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
        if bundle and name not in charts:
            reader.problem(
                *(kind.chosen_by or (KEY, name)),
                "the folder of the setting bundle has neither its chart nor its image",
                f"Set {CHARTS}.{name} to its chart, and let the nodes have its image from a "
                f"registry that they reach; or install it yourself, and {without}",
            )
    return tuple(ControllerSettings(name, charts.get(name, "")) for name in kinds if name in names)


def _names(reader: Reader, kinds: Mapping[str, ControllerChoice]) -> list[str]:
    """Those that the setting names; another setting stands for the others."""
    found, known = list[str](), [name for name, kind in kinds.items() if not kind.chosen_by]
    for index, value in enumerate(reader.sequence(KEY)):
        where = f"{KEY}[{index}]"
        if value in kinds and value not in known:
            hint = f"Take it out of the list, and set {kinds[value].setting}"
            reader.problem(where, value, "another setting stands for it", hint)
        elif value not in known:
            close = difflib.get_close_matches(str(value), known, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            reason = "this program installs no controller of that name"
            reader.problem(where, value, reason, f"Set one of {', '.join(known)}{hint}")
        elif value in found:
            reader.problem(where, value, "it is in the list twice", "Take one of the two away")
        else:
            found.append(value)
    return found


def _charts(
    reader: Reader, kinds: Mapping[str, ControllerChoice], names: Iterable[str]
) -> dict[str, str]:
    found = dict[str, str]()
    for name, value in reader.mapping(CHARTS).items():
        where, text = f"{CHARTS}.{name}", str(value)
        if name not in names:
            hint = f"Set one of {', '.join(kinds)}"
            if name in kinds:
                chosen = kinds[name].chosen_by
                hint = f"Set {kinds[name].setting}" if chosen else f"Add {name} to {KEY}"
            reader.problem(where, text, f"{name} is not among {KEY}", hint)
        elif "://" in text:
            if re.fullmatch(_PINNED, text) is None:
                shown = re.sub(r"//[^/]*:[^/]*@", "//[secret]@", text)
                reason = "it is not the address of a chart in a registry with its digest"
                reader.problem(where, shown, reason, _HINT)
            found[name] = text
        else:
            path = Path(text).expanduser().resolve()
            if reason := _chart_problem(path, name, kinds[name].version):
                reader.problem(where, text, reason, _HINT)
            found[name] = str(path)
    return found


def _chart_problem(path: Path, name: str, version: str) -> str:
    """Why what is at this path will not do; empty where the chart of this version is there."""
    try:
        about = chart_description(path, name)
    except (OSError, KeyError, ValueError, tarfile.TarError, yaml.YAMLError) as error:
        return f"no chart can be read there ({error})"
    if (about.get("name"), about.get("version")) != (name, version):
        return (
            f"the chart there is {about.get('name')} {about.get('version')}, and this program "
            f"knows {name} {version}"
        )
    return ""

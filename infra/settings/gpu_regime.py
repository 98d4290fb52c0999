"""Chooses by which mechanism the GPU Operator lets k3s' containerd give GPUs to pods.

The mechanism is called the regime. It depends on the versions of the chart and of k3s, and on what
the host already has. All functions are pure.

Sources: NVIDIA/gpu-operator deployments/gpu-operator/values.yaml of the releases named here, its
release notes for v25.10 and v26.3, and k3s' and RKE2's documents on NVIDIA runtimes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from infra.settings.setting_error import SettingError

Regime: TypeAlias = Literal["cdi", "nri", "legacy", "preinstalled"]
Version: TypeAlias = tuple[int, ...]

REGIMES: tuple[Regime, ...] = ("cdi", "nri", "legacy", "preinstalled")
OLDEST_CHART: Version = (24, 9, 1)
FIRST_CDI_CHART: Version = (25, 10, 1)
FIRST_NRI_CHART: Version = (26, 3, 0)
# The first chart with the value `driver.secretEnv`. v25.10.0 has it too, but is a bad chart.
FIRST_SECRET_ENV_CHART: Version = (25, 10, 1)
# Charts that are known to do harm, and the reason.
BAD_CHARTS: dict[Version, str] = {
    (24, 9, 0): "its toolkit 1.17.0 does not find k3s' containerd",
    (25, 10, 0): "its toolkit 1.18.0 overwrites the imports of containerd's configuration",
}
# First release of each minor version of k3s with containerd 2.0. In containerd 1.7 CDI is switched
# off by default, and k3s does not switch it on.
CONTAINERD_2_0: dict[Version, Version] = {(1, 31): (1, 31, 6), (1, 32): (1, 32, 2)}
# First release of each minor version of k3s with containerd 2.1. NVIDIA's toolkit does not support
# the NRI of an older 2.x.
CONTAINERD_2_1: dict[Version, Version] = {
    (1, 31): (1, 31, 13),
    (1, 32): (1, 32, 9),
    (1, 33): (1, 33, 5),
    (1, 34): (1, 34, 1),
}


@dataclass(frozen=True)
class HostParts:
    """Which parts the operator installs. The host already has the others."""

    driver: bool
    toolkit: bool


def chart_version(text: str) -> Version | None:
    """Read the version of a chart: `v26.3.3` is (26, 3, 3). None if the text has another form."""
    match = re.fullmatch(r"v(\d+)\.(\d+)\.(\d+)", text)
    return tuple(int(part) for part in match.groups()) if match else None


def k3s_version(text: str) -> Version:
    """Read the version of k3s: `v1.34.2+k3s1` is (1, 34, 2). Empty if the text has another form."""
    match = re.match(r"v(\d+)\.(\d+)\.(\d+)\+", text)
    return tuple(int(part) for part in match.groups()) if match else ()


def has_cdi(k3s: Version) -> bool:
    """Whether this k3s' containerd has CDI (Container Device Interface) switched on by default."""
    return _is_from(k3s, CONTAINERD_2_0)


def has_nri(k3s: Version) -> bool:
    """Whether NVIDIA's toolkit supports the NRI (Node Resource Interface) of this containerd."""
    return _is_from(k3s, CONTAINERD_2_1)


def _is_from(k3s: Version, firsts: Mapping[Version, Version]) -> bool:
    """Whether this k3s is as new as the first release in `firsts` with the same minor version.

    A minor version that is newer than all in `firsts` is new enough.
    """
    minor = k3s[:2]
    first = firsts.get(minor)
    return k3s >= first if first else minor > max(firsts)


def refuse_chart(chart: Version) -> SettingError | None:
    """Why this version of the chart must not be used; None if it may be used."""
    hint = f"Set another release, such as {shown(FIRST_NRI_CHART)} or a later one"
    if chart in BAD_CHARTS:
        return SettingError(BAD_CHARTS[chart], hint)
    if chart < OLDEST_CHART:
        oldest = shown(OLDEST_CHART)
        return SettingError(f"charts before {oldest} do not know a k3s with containerd 2", hint)
    return None


def choose_regime(wanted: str, chart: Version, k3s: Version, parts: HostParts) -> Regime:
    """Return the regime: `wanted` if it works, or the best one for `auto`.

    Args:
        wanted: `auto`, or one of REGIMES.
        chart: version of the chart.
        k3s: version of k3s; empty if this stack does not install it. The cluster is then assumed
            to be new enough.
        parts: the parts that the operator installs.

    Raises:
        SettingError: `wanted` cannot work with these versions or parts. It says why, and what to
            set.
    """
    if wanted == "auto":
        if parts.toolkit:
            wanted = "legacy" if chart < FIRST_CDI_CHART else "cdi"
        else:
            wanted = "preinstalled"
    assert wanted in REGIMES
    if fault := _fault_of_parts(wanted, parts) or _fault_of_versions(wanted, chart, k3s):
        raise fault
    return wanted


def _fault_of_parts(regime: Regime, parts: HostParts) -> SettingError | None:
    """Why the regime cannot work with what the host has; None if it can."""
    if not parts.toolkit and regime != "preinstalled":
        return SettingError(
            "gpuOperatorToolkit is false, so the host has the container toolkit",
            "Set auto or preinstalled, or gpuOperatorToolkit: true",
        )
    if parts.toolkit and regime == "preinstalled":
        return SettingError(
            "gpuOperatorToolkit is true, so the operator installs a second container toolkit",
            "Set auto, or gpuOperatorToolkit: false",
        )
    if regime == "preinstalled" and parts.driver:
        return SettingError(
            "the host's container toolkit (gpuOperatorToolkit: false) needs the host's driver",
            "Set gpuOperatorDriver: false",
        )
    return None


def _fault_of_versions(regime: Regime, chart: Version, k3s: Version) -> SettingError | None:
    """Why the regime cannot work with this chart or this k3s; None if it can."""
    first_cdi, first_nri = shown(FIRST_CDI_CHART), shown(FIRST_NRI_CHART)
    if regime == "legacy" and chart >= FIRST_CDI_CHART:
        return SettingError(f"charts from {first_cdi} on no longer have it", "Set auto")
    if regime == "cdi" and chart < FIRST_CDI_CHART:
        older = f"charts before {first_cdi} do not have it in the form that k3s needs"
        return SettingError(older, f"Set auto, or gpuOperatorVersion to {first_cdi} or later")
    if regime == "cdi" and k3s and not has_cdi(k3s):
        return SettingError(
            "the containerd of this k3s is older than 2.0, and would give pods no GPU by CDI",
            f"Set k3sVersion to one of {_releases(CONTAINERD_2_0)} or later, or "
            f"gpuOperatorVersion to a release before {first_cdi}",
        )
    if regime == "nri" and chart < FIRST_NRI_CHART:
        older = f"charts before {first_nri} do not have it"
        return SettingError(older, f"Set auto, or gpuOperatorVersion to {first_nri} or later")
    if regime == "nri" and k3s and not has_nri(k3s):
        return SettingError(
            "the containerd of this k3s is older than 2.1",
            f"Set auto, or k3sVersion to one of {_releases(CONTAINERD_2_1)} or later",
        )
    return None


def _releases(firsts: Mapping[Version, Version]) -> str:
    return ", ".join(shown(version) for version in firsts.values())


def shown(version: Version) -> str:
    """Return the version as the tag of a release, such as `v26.3.0`."""
    return "v" + ".".join(str(part) for part in version)

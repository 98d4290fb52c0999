"""How the operator ties into containerd (the regime) follows from versions, and what cannot work is
refused.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.settings.gpu_regime import (
    BAD_CHARTS,
    FIRST_CDI_CHART,
    REGIMES,
    HostParts,
    chart_version,
    choose_regime,
    has_cdi,
    has_nri,
    k3s_version,
    refuse_chart,
)
from infra.settings.setting_error import SettingError

CHARTS = ("v24.9.1", "v25.3.4", "v25.10.1", "v26.3.3", "v26.7.0")
CHOICES = [
    ("auto", "v26.3.3", "v1.34.2+k3s1", True, "cdi"),
    ("auto", "v25.10.1", "v1.34.2+k3s1", True, "cdi"),
    ("auto", "v25.3.4", "v1.34.2+k3s1", True, "legacy"),
    ("auto", "v25.3.4", "v1.30.9+k3s1", True, "legacy"),
    ("auto", "v26.3.3", "v1.31.6+k3s1", True, "cdi"),
    ("auto", "v26.3.3", "v1.32.2+k3s1", True, "cdi"),
    ("auto", "v26.3.3", "v1.34.2+k3s1", False, "preinstalled"),
    ("nri", "v26.3.0", "v1.34.1+k3s1", True, "nri"),
    ("nri", "v26.7.0", "v1.35.0+k3s1", True, "nri"),
    ("nri", "v26.7.0", "", True, "nri"),
    ("cdi", "v26.7.0", "", True, "cdi"),
]


@pytest.mark.parametrize(("wanted", "chart", "k3s", "toolkit", "regime"), CHOICES)
def test_regime_follows_from_the_versions(
    wanted: str, chart: str, k3s: str, toolkit: bool, regime: str
) -> None:
    version = chart_version(chart)
    assert version
    parts = HostParts(driver=False, toolkit=toolkit)
    assert choose_regime(wanted, version, k3s_version(k3s), parts) == regime


REFUSED = [
    ("nri", "v25.10.1", "v1.34.2+k3s1", (False, True), "charts before v26.3.0 do not have it"),
    ("nri", "v26.3.3", "v1.33.4+k3s1", (False, True), "containerd of this k3s is older than 2.1"),
    ("nri", "v26.3.3", "v1.30.9+k3s1", (False, True), "containerd of this k3s is older than 2.1"),
    ("cdi", "v25.3.4", "v1.34.2+k3s1", (False, True), "charts before v25.10.1 do not"),
    # containerd 1.7 has CDI too, but it is off, and k3s does not switch it on. The operator would
    # be ready there, but the pods of a training would see no GPU.
    ("auto", "v26.3.3", "v1.30.9+k3s1", (False, True), "containerd of this k3s is older than 2.0"),
    ("cdi", "v26.3.3", "v1.31.5+k3s1", (False, True), "containerd of this k3s is older than 2.0"),
    ("auto", "v26.3.3", "v1.32.1+k3s1", (False, True), "containerd of this k3s is older than 2.0"),
    ("legacy", "v26.3.3", "v1.34.2+k3s1", (False, True), "charts from v25.10.1 on no longer"),
    ("preinstalled", "v26.3.3", "v1.34.2+k3s1", (False, True), "gpuOperatorToolkit is true"),
    ("cdi", "v26.3.3", "v1.34.2+k3s1", (False, False), "gpuOperatorToolkit is false"),
    ("preinstalled", "v26.3.3", "v1.34.2+k3s1", (True, False), "needs the host's driver"),
    ("auto", "v26.3.3", "v1.34.2+k3s1", (True, False), "needs the host's driver"),
]


@pytest.mark.parametrize(("wanted", "chart", "k3s", "parts", "reason"), REFUSED)
def test_regime_that_cannot_work_is_refused_with_the_reason(
    wanted: str, chart: str, k3s: str, parts: tuple[bool, bool], reason: str
) -> None:
    version = chart_version(chart)
    assert version
    with pytest.raises(ValueError, match=reason):
        choose_regime(wanted, version, k3s_version(k3s), HostParts(*parts))


versions = st.tuples(st.integers(24, 27), st.integers(1, 12), st.integers(0, 5))
releases = st.tuples(st.just(1), st.integers(26, 37), st.integers(0, 15))


@given(st.sampled_from(("auto", *REGIMES)), versions, releases, st.booleans(), st.booleans())
def test_every_choice_is_a_regime_or_a_reason(
    wanted: str, chart: tuple[int, ...], k3s: tuple[int, ...], driver: bool, toolkit: bool
) -> None:
    """Every combination of versions and settings gives a regime that fits them, or is refused with
    a reason.
    """
    parts = HostParts(driver, toolkit)
    # `auto` finds a regime unless none works: a chart with CDI needs a newer containerd, and the
    # host's toolkit the host's driver.
    too_old = toolkit and chart >= FIRST_CDI_CHART and not has_cdi(k3s)
    if wanted == "auto" and (too_old or (driver and not toolkit)):
        with pytest.raises(SettingError):
            choose_regime(wanted, chart, k3s, parts)
        return
    try:
        regime = choose_regime(wanted, chart, k3s, parts)
    except SettingError:
        assert wanted != "auto"
        return
    assert regime in REGIMES
    assert wanted in ("auto", regime)
    assert (regime == "preinstalled") == (not toolkit)
    assert regime != "nri" or has_nri(k3s)
    assert choose_regime(regime, chart, k3s, parts) == regime


def test_charts_known_to_do_harm_are_refused() -> None:
    """The versions of the chart that are known to do harm are refused, and the supported ones are
    not.
    """
    for bad in BAD_CHARTS:
        assert refuse_chart(bad)
    for chart in CHARTS:
        version = chart_version(chart)
        assert version
        assert refuse_chart(version) is None

"""Regimes, sharing and chart values of the GPU Operator, against what the charts know."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pulumi import RunError

from infra.gpu_regime import (
    BAD_CHARTS,
    REGIMES,
    HostParts,
    chart_version,
    choose_regime,
    has_nri,
    k3s_version,
    refuse_chart,
)
from infra.gpu_sharing import MIG_PROFILES, Sharing, sharing_problems
from infra.manifests.gpu_operator import chart_values
from infra.settings import Settings, parse_settings
from tests.unit.stacks import deploy, raw_settings

# What values.yaml of NVIDIA/gpu-operator at these tags has for the keys that we set: a type, or
# the keys of an object. A key that a chart does not have would be ignored by it, silently.
COMMON: Mapping[str, Any] = {
    "driver": {"enabled": bool, "env": list, "certConfig": {"name": str}},
    "toolkit": {"enabled": bool, "env": list},
    "dcgmExporter": {"enabled": bool},
    "devicePlugin": {"config": {"create": bool, "name": str, "default": str, "data": dict}},
    "mig": {"strategy": str},
    "migManager": {"config": {"default": str, "create": bool, "name": str, "data": dict}},
}
NEWER: Mapping[str, Any] = {
    **COMMON,
    "driver": {**COMMON["driver"], "secretEnv": str},
    "node-feature-discovery": {"postDeleteCleanup": bool},  # of the chart inside the chart
}
SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "v24.9.2": {**COMMON, "cdi": {"enabled": bool, "default": bool}},
    "v25.3.4": {**COMMON, "cdi": {"enabled": bool, "default": bool}},
    "v25.10.1": {**NEWER, "cdi": {"enabled": bool}},
    "v26.3.3": {**NEWER, "cdi": {"enabled": bool, "nriPluginEnabled": bool}},
    "v26.7.0": {**NEWER, "cdi": {"enabled": bool, "nriPluginEnabled": bool}},
}
CDI_IS_DEFAULT = {"v24.9.2": False, "v25.3.4": False}  # cdi.enabled; true in all later ones
OLD, NEW = "v25.3.4", "v26.3.3"
WITH_DRIVER = {"gpuOperatorDriver": True}
PROXY = {"httpsProxy": "http://proxy.example:3128", "nodeAddress": "10.1.2.3"}
ONE_RANK = {"gpusPerPod": 1, "gpus": 1}


WITH_PASSWORD = {**PROXY, "httpsProxy": "http://me:hunter7@proxy.example:3128"}


def settings_with(changes: Mapping[str, object]) -> Settings:
    return parse_settings(raw_settings("dev", changes), ("httpsProxy",), "dev")


def values_with(changes: Mapping[str, object]) -> dict[str, Any]:
    settings = settings_with(changes)
    assert settings.gpu_operator
    return chart_values(settings.gpu_operator, settings)


def misfits(value: Any, schema: Any, path: str = "") -> list[str]:
    """Where a value is of another kind than the chart's, or has a key that it does not have."""
    if isinstance(schema, Mapping):
        if not isinstance(value, dict):
            return [f"{path}: not an object"]
        unknown = [f"{path}.{key}: unknown" for key in value if key not in schema]
        inner = [
            m
            for key in value
            if key in schema
            for m in misfits(value[key], schema[key], f"{path}.{key}")
        ]
        return unknown + inner
    return [] if isinstance(value, schema) else [f"{path}: {value!r}"]


def allowed_regimes(chart: str) -> list[str]:
    version = chart_version(chart)
    assert version
    if version < (25, 10, 1):
        return ["auto", "legacy", "preinstalled"]
    return ["auto", "cdi", "preinstalled", *(["nri"] if version >= (26, 3, 0) else [])]


@pytest.mark.parametrize("chart", SCHEMAS)
@pytest.mark.parametrize("driver", [False, True], ids=["host-driver", "operator-driver"])
@pytest.mark.parametrize("shared", ["", "slices", "mig"])
def test_values_have_only_keys_and_kinds_that_the_chart_knows(
    chart: str, driver: bool, shared: str, tmp_path: Path
) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n")
    sharing: dict[str, object] = {
        "": {},
        "slices": {"gpuTimeSlices": 4},
        "mig": {"migProfile": "1g.10gb", "gpuModel": "H100-80GB"},
    }[shared]
    for regime in allowed_regimes(chart):
        if regime == "preinstalled" and driver:
            continue
        changes = {
            **(ONE_RANK if shared else {}),
            **sharing,
            **PROXY,
            "caBundle": str(bundle),
            "gpuOperatorVersion": chart,
            "gpuOperatorRegime": regime,
            "gpuOperatorDriver": driver,
            "gpuOperatorToolkit": regime != "preinstalled",
        }
        assert misfits(values_with(changes), SCHEMAS[chart]) == []


@pytest.mark.parametrize("chart", SCHEMAS)
def test_a_proxys_password_goes_by_secret_or_the_chart_is_refused(
    chart: str, tmp_path: Path
) -> None:
    wanted = {**WITH_PASSWORD, "gpuOperatorVersion": chart}
    assert settings_with(wanted).gpu_operator, "fine with the driver of the host"
    if "secretEnv" in SCHEMAS[chart]["driver"]:
        result = deploy("dev", tmp_path, {**wanted, **WITH_DRIVER}, ("httpsProxy",))
        values = result.one("gpu-operator-release").inputs["values"]
        assert values["driver"]["secretEnv"].startswith("disttrain-proxy-")
        assert {entry["name"] for entry in values["driver"]["env"]} == {"NO_PROXY", "no_proxy"}
        assert misfits(values, SCHEMAS[chart]) == []
        return
    with pytest.raises(RunError, match=r"gpuOperatorDriver: .*from v25\.10\.1 on") as refused:
        settings_with({**wanted, **WITH_DRIVER})
    assert "hunter7" not in str(refused.value)
    without = settings_with({**PROXY, **WITH_DRIVER, "gpuOperatorVersion": chart})
    assert without.gpu_operator, "fine without a password"


def test_the_schema_check_would_see_a_wrong_key_and_a_wrong_kind() -> None:
    wrong = {"driver": {"enabled": "yes"}, "toolkit": {"socket": "x"}, "dra": {}}
    assert misfits(wrong, SCHEMAS[NEW]) == [
        ".dra: unknown",
        ".driver.enabled: 'yes'",
        ".toolkit.socket: unknown",
    ]


def toolkit_env(values: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in values["toolkit"].get("env", [])}


SOCKET = "/run/k3s/containerd/containerd.sock"


def test_cdi_tells_the_toolkit_the_socket_and_nothing_else() -> None:
    values = values_with({"gpuOperatorVersion": NEW})
    assert toolkit_env(values) == {"CONTAINERD_SOCKET": SOCKET}
    assert "cdi" not in values
    assert CDI_IS_DEFAULT.get(NEW, True)


def test_nri_edits_no_configuration_of_containerd() -> None:
    values = values_with({"gpuOperatorVersion": NEW, "gpuOperatorRegime": "nri"})
    assert values["cdi"] == {"enabled": True, "nriPluginEnabled": True}
    assert toolkit_env(values) == {}


def test_legacy_makes_nvidia_the_default_runtime_of_k3s() -> None:
    values = values_with({"gpuOperatorVersion": OLD})
    assert toolkit_env(values) == {
        "CONTAINERD_CONFIG": "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
        "CONTAINERD_SOCKET": SOCKET,
        "CONTAINERD_RUNTIME_CLASS": "nvidia",
        "CONTAINERD_SET_AS_DEFAULT": "true",
    }
    assert values["cdi"] == {"enabled": False}


def test_preinstalled_toolkit_is_named_by_the_pods(tmp_path: Path) -> None:
    changes = {"gpuOperatorToolkit": False}
    values = values_with(changes)
    assert values["toolkit"] == {"enabled": False}
    assert values["cdi"] == {"enabled": False}

    def runtime_class(more: Mapping[str, object]) -> str | None:
        job = deploy("dev", tmp_path, more).one("training-job")
        return job.inputs["spec"]["template"]["spec"].get("runtimeClassName")

    assert runtime_class(changes) == "nvidia"
    assert runtime_class({}) is None


CHOICES = [
    ("auto", "v26.3.3", "v1.34.2+k3s1", True, "cdi"),
    ("auto", "v25.10.1", "v1.34.2+k3s1", True, "cdi"),
    ("auto", "v25.3.4", "v1.34.2+k3s1", True, "legacy"),
    ("auto", "v26.3.3", "v1.34.2+k3s1", False, "preinstalled"),
    ("nri", "v26.7.0", "v1.34.2+k3s1", True, "nri"),
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
    ("nri", "v25.10.1", "v1.34.2+k3s1", (False, True), "nri with charts from v26.3.0"),
    ("nri", "v26.3.3", "v1.33.4+k3s1", (False, True), "nri with containerd 2.1"),
    ("nri", "v26.3.3", "v1.30.9+k3s1", (False, True), "nri with containerd 2.1"),
    ("cdi", "v25.3.4", "v1.34.2+k3s1", (False, True), "cdi with charts from v25.10.1"),
    ("auto", "v26.3.3", "v1.27.9+k3s1", (False, True), "its containerd is older than 1.7"),
    ("legacy", "v26.3.3", "v1.34.2+k3s1", (False, True), "legacy with charts older"),
    ("preinstalled", "v26.3.3", "v1.34.2+k3s1", (False, True), "with gpuOperatorToolkit false"),
    ("cdi", "v26.3.3", "v1.34.2+k3s1", (False, False), "preinstalled, and only that"),
    ("preinstalled", "v26.3.3", "v1.34.2+k3s1", (True, False), "gpuOperatorDriver false"),
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
    with suppress(ValueError):  # says why
        regime = choose_regime(wanted, chart, k3s, HostParts(driver, toolkit))
        assert regime in REGIMES
        assert wanted in ("auto", regime)
        assert (regime == "preinstalled") == (not toolkit)
        assert regime != "nri" or has_nri(k3s)


def test_charts_known_to_do_harm_are_refused() -> None:
    for bad in BAD_CHARTS:
        assert refuse_chart(bad)
    for chart in SCHEMAS:
        version = chart_version(chart)
        assert version
        assert refuse_chart(version) is None


# --- sharing ---


@given(
    st.integers(1, 16),
    st.sampled_from(["", "1g.10gb", "2g.20gb"]),
    st.sampled_from(list(MIG_PROFILES)),
    st.integers(1, 9),
)
def test_two_nccl_ranks_never_share_a_gpu(
    slices: int, profile: str, model: str, ranks: int
) -> None:
    problems = sharing_problems(Sharing(slices, profile), model, ranks)
    shared = slices > 1 or profile
    if shared and ranks > 1:
        assert any("two nccl ranks" in allowed for _, _, allowed in problems)
    if not shared:
        assert problems == []


def test_an_a10_has_no_mig_and_an_a100_has_its_own_profiles() -> None:
    (problem,) = sharing_problems(Sharing(mig_profile="1g.5gb"), "A10", 1)
    assert problem == ("migProfile", "1g.5gb", "none: the A10 has no MIG")
    assert sharing_problems(Sharing(mig_profile="1g.5gb"), "A100-40GB", 1) == []
    (problem,) = sharing_problems(Sharing(mig_profile="1g.5gb"), "A100-80GB", 1)
    assert problem[2].startswith("for the A100-80GB: 1g.10gb")


def test_another_number_of_slices_is_another_config_map() -> None:
    names: set[str] = set()
    for slices in (2, 3, 4):
        config = values_with({**ONE_RANK, "gpuTimeSlices": slices})["devicePlugin"]["config"]
        names.add(config["name"])
        (resource,) = yaml.safe_load(config["data"]["shared"])["sharing"]["timeSlicing"][
            "resources"
        ]
        assert resource == {"name": "nvidia.com/gpu", "replicas": slices}
        assert config["default"] in config["data"]
    assert len(names) == 3
    assert "devicePlugin" not in values_with({})


def test_mig_profile_is_the_default_of_the_mig_manager() -> None:
    changes = {**ONE_RANK, "migProfile": "3g.40gb", "gpuModel": "H100-80GB"}
    values = values_with(changes)
    assert values["migManager"] == {"config": {"default": "all-3g.40gb"}}
    assert values["mig"] == {"strategy": "single"}


@pytest.mark.parametrize("wanted", [True, False])
def test_metrics_exporter_is_a_switch(wanted: bool) -> None:
    values = values_with({"gpuOperatorDcgmExporter": wanted})
    assert values["dcgmExporter"] == {"enabled": wanted}


def test_operator_is_waited_for_and_cleaned_up_after_its_release(tmp_path: Path) -> None:
    result = deploy("dev", tmp_path)
    release, cleanup = result.one("gpu-operator-release"), result.one("gpu-operator-cleanup")
    wait = result.one("gpu-operator-await")
    # on destroy, what depends goes first: the release, then what it left, then the namespace
    assert cleanup.urn in release.request.dependencies
    assert result.one("gpu-operator-namespace").urn in cleanup.request.dependencies
    assert release.urn in wait.request.dependencies
    assert "export GPUS=3\n" in wait.program
    # nothing of it needs an image that the cluster may not be able to pull
    assert "operator" not in release.inputs["values"]
    assert release.inputs["values"]["node-feature-discovery"] == {"postDeleteCleanup": False}

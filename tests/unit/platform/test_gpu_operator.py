"""The values for the chart of the GPU Operator have the keys and types of the chart, in all its
supported versions, and the operator is installed and removed in the right order.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi import RunError

from infra.platform.gpu_operator_values import chart_values
from infra.settings import PlatformSettings
from infra.settings.gpu_regime import (
    chart_version,
)
from infra.settings.gpu_values import COMPUTED
from tests.unit.certificates import AUTHORITY
from tests.unit.settings.reading import platform
from tests.unit.stacks import deploy

# What values.yaml of NVIDIA/gpu-operator at these tags has for the keys that this program sets: a
# type, or the keys of an object. A chart silently ignores a key that it does not have.
COMMON: Mapping[str, Any] = {
    "daemonsets": {"tolerations": list},
    "driver": {"enabled": bool, "env": list, "certConfig": {"name": str}},
    "toolkit": {"enabled": bool, "env": list},
    "dcgmExporter": {"enabled": bool},
    "devicePlugin": {"config": {"create": bool, "name": str, "default": str, "data": dict}},
    "mig": {"strategy": str},
    "node-feature-discovery": {"worker": {"tolerations": list}},  # of the subchart
}
NEWER: Mapping[str, Any] = {
    **COMMON,
    "driver": {**COMMON["driver"], "secretEnv": str},
    "node-feature-discovery": {**COMMON["node-feature-discovery"], "postDeleteCleanup": bool},
}
SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "v24.9.2": {**COMMON, "cdi": {"enabled": bool, "default": bool}},
    "v25.3.4": {**COMMON, "cdi": {"enabled": bool, "default": bool}},
    "v25.10.1": {**NEWER, "cdi": {"enabled": bool}},
    "v26.3.3": {**NEWER, "cdi": {"enabled": bool, "nriPluginEnabled": bool}},
    "v26.7.0": {**NEWER, "cdi": {"enabled": bool, "nriPluginEnabled": bool}},
}
NO_CDI_BY_DEFAULT = ("v24.9.2", "v25.3.4")  # their cdi.enabled is false; it is true in later ones
OLD, NEW = "v25.3.4", "v26.3.3"
WITH_DRIVER = {"gpuOperatorDriver": True}
PROXY = {"httpsProxy": "http://proxy.example:3128", "nodeAddress": "10.1.2.3"}
ONE_RANK = {"gpusPerPod": 1, "gpus": 1}


WITH_PASSWORD = {**PROXY, "httpsProxy": "http://me:hunter7@proxy.example:3128"}


def settings_with(changes: Mapping[str, object]) -> PlatformSettings:
    """Return the platform's settings with these changes."""
    return platform(changes, ("httpsProxy",))


def values_with(changes: Mapping[str, object]) -> dict[str, Any]:
    """Return the values for the operator's chart with these changes of the settings."""
    settings = settings_with(changes)
    assert settings.gpu_operator
    return chart_values(settings.gpu_operator, settings)


def misfits(value: Any, schema: Any, path: str = "") -> list[str]:
    """Return where a value has another type than the chart's, or a key that the chart does not
    have.
    """
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
    """Return the values of `gpuOperatorRegime` that this version of the chart allows."""
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
    """For each version of the chart and each regime, the values contain only keys that the chart
    knows, with values of its types. The chart would silently ignore another key.
    """
    bundle = tmp_path / "ca.pem"
    bundle.write_text(AUTHORITY)
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
    """The driver gets a proxy's password by a Secret. A version of the chart that cannot read a
    Secret is refused if the operator installs the driver and the proxy has a password.
    """
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
    """Return the variables of the operator's toolkit."""
    return {entry["name"]: entry["value"] for entry in values["toolkit"].get("env", [])}


SOCKET = "/run/k3s/containerd/containerd.sock"


def test_cdi_tells_the_toolkit_the_socket_and_nothing_else() -> None:
    """With CDI, the toolkit is told only where the socket of k3s' containerd is."""
    values = values_with({"gpuOperatorVersion": NEW})
    assert toolkit_env(values) == {"CONTAINERD_SOCKET": SOCKET}
    assert "cdi" not in values


@pytest.mark.parametrize("chart", SCHEMAS)
def test_chart_has_cdi_where_the_regime_needs_it(chart: str) -> None:
    """For each version of the chart, CDI is on in the regimes `cdi` and `nri`, and off in the
    others, by the values or by the default of that version.
    """
    default = chart not in NO_CDI_BY_DEFAULT
    for wanted in allowed_regimes(chart):
        toolkit = wanted != "preinstalled"
        changes = {"gpuOperatorVersion": chart, "gpuOperatorRegime": wanted}
        settings = settings_with({**changes, "gpuOperatorToolkit": toolkit})
        assert settings.gpu_operator
        values = chart_values(settings.gpu_operator, settings)
        is_on = values.get("cdi", {}).get("enabled", default)
        assert is_on == (settings.gpu_operator.regime in ("cdi", "nri")), wanted


def test_nri_edits_no_configuration_of_containerd() -> None:
    """With NRI, the toolkit gets no path, so that it changes no configuration of containerd."""
    values = values_with({"gpuOperatorVersion": NEW, "gpuOperatorRegime": "nri"})
    assert values["cdi"] == {"enabled": True, "nriPluginEnabled": True}
    assert toolkit_env(values) == {}


def test_legacy_makes_nvidia_the_default_runtime_of_k3s() -> None:
    """In the regime `legacy`, the toolkit makes nvidia the default runtime in the configuration of
    k3s' containerd.
    """
    values = values_with({"gpuOperatorVersion": OLD})
    assert toolkit_env(values) == {
        "CONTAINERD_CONFIG": "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
        "CONTAINERD_SOCKET": SOCKET,
        "CONTAINERD_RUNTIME_CLASS": "nvidia",
        "CONTAINERD_SET_AS_DEFAULT": "true",
    }
    assert values["cdi"] == {"enabled": False}


def test_preinstalled_toolkit_is_named_by_the_pods(tmp_path: Path) -> None:
    """If the toolkit is on the hosts already, the operator brings none, and the pods name the
    runtime class nvidia.
    """
    changes = {"gpuOperatorToolkit": False}
    values = values_with(changes)
    assert values["toolkit"] == {"enabled": False}
    assert values["cdi"] == {"enabled": False}

    def runtime_class(more: Mapping[str, object]) -> str | None:
        job = deploy("dev", tmp_path, more).one("training-job")
        return job.inputs["spec"]["template"]["spec"].get("runtimeClassName")

    assert runtime_class(changes) == "nvidia"
    assert runtime_class({}) is None


def test_another_number_of_slices_is_another_config_map() -> None:
    """The ConfigMap with the time slices has another name for each number of slices, so that a
    change reaches the device plugin.
    """
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


def test_mig_profile_is_no_value_of_the_chart(tmp_path: Path) -> None:
    """A MIG profile reaches the nodes by a label, which the wait sets, and not by the chart's
    values. The definition of the ClusterPolicy would refuse a profile as the default of the MIG
    manager.
    """
    changes = {**ONE_RANK, "migProfile": "3g.40gb", "gpuModel": "H100-80GB"}
    values = values_with(changes)
    assert values["mig"] == {"strategy": "single"}
    assert "migManager" not in values
    for more, config in ((changes, "all-3g.40gb"), ({}, "''")):
        program = deploy("dev", tmp_path, more).one("gpu-operator-await").program
        assert f"export MIG_CONFIG={config}\n" in program


TAINTED = {
    "topology": "none",
    "storageOptions": {"shared": True},
    "nodeAddress": "10.1.2.3",
    "nodes": [
        {
            "name": f"gpu{number}",
            "address": f"10.1.2.{number}",
            "host_key": "ssh-ed25519 AAAA",
            "taints": ["dedicated=training:NoSchedule", *more],
        }
        for number, more in ((4, []), (5, ["rented:NoExecute", "old:PreferNoSchedule"]))
    ],
}


@pytest.mark.parametrize("chart", SCHEMAS)
def test_operators_pods_tolerate_the_taints_of_our_nodes(chart: str) -> None:
    """The operator's pods tolerate the taints of the machines in `nodes`. Otherwise nothing of it
    would start on a machine with a taint, the machine would offer no GPU, and `up` would wait for
    half an hour.
    """
    values = values_with({**TAINTED, "gpuOperatorVersion": chart})
    ours = [{"key": key, "operator": "Exists"} for key in ("dedicated", "rented")]
    gpu = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert values["daemonsets"]["tolerations"] == [gpu, *ours]
    discovery = values["node-feature-discovery"]["worker"]["tolerations"]
    # Helm replaces lists, so the chart's own tolerations have to be in this one.
    control_plane = {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}
    assert [each for each in discovery if each not in ours] == [
        {**control_plane, "effect": "NoSchedule"},
        gpu,
    ]
    assert misfits(values, SCHEMAS[chart]) == []
    assert "daemonsets" not in values_with({"gpuOperatorVersion": chart})


@pytest.mark.parametrize("wanted", [True, False])
def test_metrics_exporter_is_a_switch(wanted: bool) -> None:
    """The setting `gpuOperatorDcgmExporter` switches the exporter on and off."""
    values = values_with({"gpuOperatorDcgmExporter": wanted})
    assert values["dcgmExporter"] == {"enabled": wanted}


def test_operator_is_waited_for_and_cleaned_up_after_its_release(tmp_path: Path) -> None:
    """The operator is checked for first, then installed and waited for. At `destroy`, the release
    goes before its clean-up, and the namespace goes last. No step needs an image of the operator to
    clean up.
    """
    result = deploy("dev", tmp_path)
    release, cleanup = result.one("gpu-operator-release"), result.one("gpu-operator-cleanup")
    wait = result.one("gpu-operator-await")
    # At `destroy`, what depends on something goes first: release, clean-up, namespace.
    assert cleanup.urn in release.request.dependencies
    namespace = result.one("gpu-operator-namespace")
    assert namespace.urn in cleanup.request.dependencies
    # An operator of somebody else is refused before anything of this stack is made.
    assert result.one("gpu-operator-guard").urn in namespace.request.dependencies
    assert release.urn in wait.request.dependencies
    assert "export GPUS=3\n" in wait.program
    # No hook of the chart cleans up, for which the cluster would have to pull an image.
    assert "operator" not in release.inputs["values"]
    assert release.inputs["values"]["node-feature-discovery"] == {"postDeleteCleanup": False}


def test_guard_knows_of_another_driver(tmp_path: Path) -> None:
    """The first step of the operator is told which driver's container the release will bring, if it
    brings one, so that it runs again, and looks for trainings, before that changes.
    """
    with_own = deploy("dev", tmp_path / "own").one("gpu-operator-guard").program
    assert "DRIVER_CHART" not in with_own.partition("set -eu")[0]
    values = {"driver": {"version": "580.105.08"}}
    changes = {**WITH_DRIVER, "gpuOperatorVersion": NEW, "gpuOperatorValues": values}
    program = deploy("dev", tmp_path / "brought", changes).one("gpu-operator-guard").program
    assert f"export DRIVER_CHART={NEW}\n" in program
    assert "export DRIVER_VERSION=580.105.08\n" in program


def paths(values: Mapping[str, Any], before: str = "") -> set[str]:
    """Return the path of each value that is no object."""
    found = set[str]()
    for key, value in values.items():
        inner = isinstance(value, Mapping)
        found |= paths(value, f"{before}{key}.") if inner else {before + key}
    return found


def test_values_of_ones_own_join_the_computed_ones() -> None:
    """A user's own values reach the chart beside those that the settings decide about."""
    own = {"driver": {"rdma": {"enabled": True}}, "gds": {"enabled": True}}
    without = values_with({"gpuOperatorDriver": True})
    joined = values_with({"gpuOperatorDriver": True, "gpuOperatorValues": own})
    assert joined == {
        **without,
        "driver": {**without["driver"], "rdma": {"enabled": True}},
        "gds": {"enabled": True},
    }


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (
            {"toolkit": {"enabled": False}},
            "gpuOperatorValues.toolkit.enabled: false cannot be used: "
            "toolkit.enabled is set by the setting gpuOperatorToolkit. Remove it",
        ),
        ({"toolkit": None}, "gpuOperatorValues.toolkit: null cannot be used: toolkit.en"),
        ({"mig": {"strategy": "mixed"}}, "mig is set by the setting migProfile. Remove"),
        ({"cdi": {"nriPluginEnabled": True}}, "cdi is set by the setting gpuOperatorRegime"),
        ({"driver": {"env": []}}, "driver.env is set by the settings of the proxy"),
        (
            {"driver.version": "580.82.07"},
            "gpuOperatorValues.driver.version: '580.82.07' cannot be used: Helm looks for no value "
            "with a point in its name. Write it as keys inside each other: `pulumi config set "
            "--path gpuOperatorValues.driver.version VALUE`, and remove this one: `pulumi config "
            "rm --path 'gpuOperatorValues[\"driver.version\"]'`.",
        ),
        ({"driver.enabled": False}, "Helm looks for no value with a point in its name"),
        (
            {"drivers": {"rdma": {"enabled": True}}},
            "gpuOperatorValues.drivers: {rdma: {enabled: true}} cannot be used: the chart v26.3.3 "
            "has no such key (did you mean driver?), and Helm ignores it. Correct it, or remove "
            "it: `pulumi config rm --path gpuOperatorValues.drivers`. The keys are shown by `helm "
            "show values gpu-operator --repo https://helm.ngc.nvidia.com/nvidia --version v26.3.3`",
        ),
    ],
)
def test_values_that_settings_decide_about_are_refused(own: dict[str, Any], said: str) -> None:
    """A value that would undo what a setting asks for names that setting, in one message."""
    with pytest.raises(RunError) as refused:
        values_with({"gpuOperatorValues": own})
    assert said in str(refused.value)
    assert str(refused.value).count("cannot be used") == 1


@pytest.mark.parametrize(
    ("chart", "key", "is_known"),
    [
        ("v25.3.4", "extraObjects", False),
        ("v26.3.0", "extraObjects", True),
        ("v26.3.3", "draDriver", False),
        ("v26.7.0", "draDriver", True),
        ("v26.7.0", "drivers", False),
        ("v26.7.1", "drivers", True),
        *((chart, key, True) for chart in SCHEMAS for key in ("gfd", "nameOverride", "global")),
    ],
)
def test_keys_of_each_chart_are_known(chart: str, key: str, *, is_known: bool) -> None:
    """A key is refused if the chart of that version does not have it. Of a chart that is newer than
    the newest known one every key is taken.
    """
    given = {"gpuOperatorVersion": chart, "gpuOperatorValues": {key: {"a": 1}}}
    if is_known:
        assert values_with(given)[key] == {"a": 1}
    else:
        with pytest.raises(RunError, match=f"the chart {chart} has no such key"):
            values_with(given)


def test_keys_of_another_chart_are_taken() -> None:
    """A chart from elsewhere may be changed, so its keys are not known."""
    elsewhere = {"gpuOperatorChart": "https://charts.example.org/nvidia"}
    assert values_with({**elsewhere, "gpuOperatorValues": {"ours": {"a": 1}}})["ours"] == {"a": 1}


def test_names_in_values_may_have_points() -> None:
    """A point in a key further inside is right, such as in the label of a node selector."""
    own = {"operator": {"nodeSelector": {"kubernetes.io/os": "linux"}}}
    assert values_with({"gpuOperatorValues": own})["operator"]["nodeSelector"] == {
        "kubernetes.io/os": "linux"
    }


def test_values_without_an_operator_are_refused() -> None:
    """Values for an operator that this stack does not install would have no effect."""
    with pytest.raises(RunError) as refused:
        settings_with({"gpuOperator": "false", "gpuOperatorValues": {"gds": {"enabled": True}}})
    assert "gpuOperatorValues: {gds: {enabled: true}} cannot be used: this stack does not" in (
        str(refused.value)
    )


@pytest.mark.parametrize("chart", SCHEMAS)
def test_each_computed_value_is_known_to_the_check(chart: str) -> None:
    """The check of the user's values knows all places in which the program computes a value, which
    are those of the chart's keys above. Otherwise one value would silently replace the other.
    """
    for path in paths(SCHEMAS[chart]):
        assert [place for place in COMPUTED if f"{path}.".startswith(f"{place}.")], path

"""All users of the proxy get the same variables, in lower and upper case, and no password is
shown.
"""

import json
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.certificates import AUTHORITY
from tests.unit.stacks import Deployment, Registered, deploy, without_secrets

NAMES = ("http_proxy", "https_proxy", "no_proxy")

hosts = st.sampled_from(["proxy.corp.example", "10.9.8.7", "p"])
passwords = st.sampled_from(["", "me:hunter7@", "me:hunter7%40x@"])
urls = st.builds(
    lambda who, host, port: f"http://{who}{host}:{port}", passwords, hosts, st.integers(1, 9999)
)
more = st.lists(st.sampled_from(["git.example", ".corp.example", "172.16.0.0/12"]), unique=True)
ways = st.sampled_from(["http", "https", "both"])


def exported(program: str, name: str) -> str | None:
    """Return the value of a variable that a script's program sets; None if it does not set it."""
    import shlex

    for line in program.splitlines():
        if line.startswith(f"export {name}="):
            (word,) = shlex.split(line.partition("=")[2]) or [""]
            return word
    return None


def consumers(result: Deployment) -> dict[str, dict[str, str]]:
    """Return the proxy variables that k3s, the GPU driver, the pods and the build get."""
    k3s = result.one("cluster-k3s").program
    names = (*NAMES, *(name.upper() for name in NAMES))
    driver = result.one("gpu-operator-release").inputs["values"]["driver"]
    shown = {entry["name"]: entry["value"] for entry in driver.get("env", [])}
    hidden = {r.inputs["metadata"]["name"]: r.inputs["data"] for r in driver_secrets(result)}
    of_driver = hidden.pop(driver["secretEnv"]) if "secretEnv" in driver else {}
    assert not hidden
    assert not shown.keys() & of_driver.keys()
    config_map = result.one("proxy-config-map").inputs["data"]
    encoded = result.one("proxy-secret").inputs.get("data", {})
    secret = decoded(encoded)
    assert not config_map.keys() & secret.keys()
    build = result.one("image-ensure").inputs["environment"]
    return {
        "k3s": {name: value for name in names if (value := exported(k3s, name))},
        "driver": {**shown, **decoded(of_driver)},
        "pods": {**config_map, **secret},
        "build": {name: build[name] for name in names if name in build},
    }


def decoded(data: Mapping[str, str]) -> dict[str, str]:
    return {name: b64decode(value).decode() for name, value in data.items()}


def driver_secrets(result: Deployment) -> list[Registered]:
    """Return the Secrets in the GPU Operator's namespace."""
    secrets = result.of_type("kubernetes:core/v1:Secret")
    return [r for r in secrets if r.inputs["metadata"]["namespace"] == "gpu-operator"]


def changes_of(url: str, which: str, exceptions: list[str], scope: str) -> dict[str, object]:
    """Return the settings for a proxy at `url`, for http, https or both."""
    both = {"httpProxy": url, "httpsProxy": url}
    chosen = {k: v for k, v in both.items() if which == "both" or k == f"{which}Proxy"}
    return {
        **chosen,
        "noProxy": ",".join(exceptions),
        "proxyScope": scope,
        "nodeAddress": "10.1.2.3",
        "gpuOperatorDriver": True,
    }


@settings(max_examples=10, deadline=None)  # each example deploys a whole stack
@given(urls, ways, more, st.sampled_from(["all", "containerd"]))
def test_every_consumer_gets_the_same_set_in_both_cases(
    tmp_path_factory: pytest.TempPathFactory,
    url: str,
    which: str,
    exceptions: list[str],
    scope: str,
) -> None:
    """k3s, driver, pods and build get the same variables in both cases, with the cluster's own
    addresses as exceptions, and the proxy's password is shown nowhere.
    """
    secret = ("httpProxy", "httpsProxy")
    changes = changes_of(url, which, exceptions, scope)
    result = deploy("dev", tmp_path_factory.mktemp("proxy"), changes, secret)
    found = consumers(result)
    first = found["pods"]
    assert set(first["no_proxy"].split(",")) >= {
        *("10.1.2.3", "10.42.0.0/16", "10.43.0.0/16", ".svc", ".cluster.local"),
        *("127.0.0.1", "localhost"),
        *exceptions,
    }
    for name, values in found.items():
        assert values == first, name
        assert {k.lower() for k in values} == {k for k in values if k.islower()}
        assert all(values[key] == values[key.lower()] for key in values)
    prefix = exported(result.one("cluster-k3s").program, "PROXY_PREFIX")
    assert prefix == ("CONTAINERD_" if scope == "containerd" else None)
    assert_not_shown(result, "hunter7")


def assert_not_shown(result: Deployment, password: str) -> None:
    """Fail if the password is in plain text in an input, in a command line or in a ConfigMap or
    release.
    """
    for resource in result.resources:
        shown = without_secrets(resource.wire)
        assert password not in json.dumps(shown), resource.name
        if resource.type.startswith("command:"):
            for key in ("create", "update", "delete"):
                assert password not in resource.inputs.get(key, ""), resource.name
        # Helm and the operator write these values into objects that are no Secrets.
        if resource.type.endswith((":ConfigMap", ":Release")):
            assert password not in json.dumps(resource.inputs), resource.name


def test_the_drivers_proxy_is_renamed_with_its_address_and_not_with_its_password(
    tmp_path: Path,
) -> None:
    """The Secret with the driver's proxy gets another name with another address, and keeps it with
    another password. The operator does not watch the Secret, so only another name restarts the
    driver with another proxy.
    """

    def name(url: str) -> str:
        changes = changes_of(url, "both", [], "all")
        result = deploy("dev", tmp_path, changes, ("httpProxy", "httpsProxy"))
        (secret,) = driver_secrets(result)
        release = result.one("gpu-operator-release")
        assert secret.urn in release.request.dependencies
        found = release.inputs["values"]["driver"]["secretEnv"]
        assert found == secret.inputs["metadata"]["name"]
        return found

    first = name("http://me:hunter7@proxy:3128")
    assert name("http://me:hunter8@proxy:3128") == first
    assert name("http://me:hunter7@other:3128") != first


def test_a_driver_on_the_host_needs_no_proxy(tmp_path: Path) -> None:
    """If the driver is on the host already, no Secret with a proxy is made for it."""
    changes = changes_of("http://me:hunter7@p:1", "both", [], "all") | {"gpuOperatorDriver": False}
    assert driver_secrets(deploy("dev", tmp_path, changes, ("httpProxy", "httpsProxy"))) == []


def test_without_a_proxy_nobody_gets_one(tmp_path: Path) -> None:
    """Without a proxy in the settings, nobody gets a variable of a proxy."""
    result = deploy("dev", tmp_path, {"gpuOperatorDriver": True})
    assert consumers(result) == {"k3s": {}, "driver": {}, "pods": {}, "build": {}}


def pods(result: Deployment) -> list[dict[str, Any]]:
    """Return the specs of the data set's and the training's pods."""
    return [
        result.one(name).inputs["spec"]["template"]["spec"]
        for name in ("dataset-job", "training-job")
    ]


def test_authorities_reach_host_driver_build_and_pods(tmp_path: Path) -> None:
    """The setting `caBundle` reaches the host, the driver, the build, the pods and the doctor."""
    bundle = tmp_path / "ca.pem"
    bundle.write_text(AUTHORITY)
    result = deploy("dev", tmp_path, {"caBundle": str(bundle), "gpuOperatorDriver": True})
    program = result.one("trust-bundle").program
    assert AUTHORITY.strip() in program
    assert result.one("trust-bundle").urn in result.one("cluster-k3s").request.dependencies
    build: Mapping[str, str] = result.one("image-ensure").inputs
    assert build["stdin"] == AUTHORITY  # the text, because a path is valid only here
    assert "--authorities -" in build["create"]
    config_map = result.one("proxy-ca").inputs
    assert config_map["data"] == {"ca.crt": AUTHORITY}
    for pod in pods(result):
        (container,) = pod["containers"]
        variables = {entry["name"]: entry.get("value") for entry in container["env"]}
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert variables["SSL_CERT_FILE"] == f"{mounts['trust']}/ca.crt"
        assert volumes["ca"]["configMap"]["name"] == config_map["metadata"]["name"]
    values = result.one("gpu-operator-release").inputs["values"]
    ca_of_driver = result.one("gpu-operator-ca").inputs
    assert values["driver"]["certConfig"]["name"] == ca_of_driver["metadata"]["name"]
    assert json.loads(result.one("doctor-host").inputs["stdin"])["expect"]["ca_bundle"] == AUTHORITY


def test_other_authorities_make_other_pods(tmp_path: Path) -> None:
    """Other authorities change the run's revision, so that its pods are made anew."""

    def revision(text: str) -> str:
        bundle = tmp_path / "ca.pem"
        bundle.write_text(text)
        job = deploy("dev", tmp_path, {"caBundle": str(bundle)}).one("training-job")
        return job.inputs["metadata"]["labels"]["disttrain.dev/revision"]

    assert revision(AUTHORITY) == revision(AUTHORITY)
    assert revision(AUTHORITY) != revision(AUTHORITY * 2)


def test_doctor_runs_first_and_its_input_is_secret_and_stable(tmp_path: Path) -> None:
    """The doctor runs before k3s is installed, and its plan is a secret. It runs again when the
    host is to have another k3s, but not for another run.
    """
    changes = {"httpProxy": "http://me:hunter7@p:1", "nodeAddress": "10.1.2.3"}
    result = deploy("dev", tmp_path, changes, ("httpProxy",))
    doctor = result.one("doctor-host")
    assert doctor.urn in result.one("cluster-k3s").request.dependencies
    assert without_secrets(doctor.wire)["stdin"] == "[secret]"
    again = deploy("dev", tmp_path, changes, ("httpProxy",)).one("doctor-host")
    assert again.inputs == doctor.inputs
    # The doctor's plan does not depend on the run or the code, but on the version of k3s.
    other_run = deploy("dev", tmp_path, {**changes, "runName": "x"}, ("httpProxy",))
    assert other_run.one("doctor-host").inputs == doctor.inputs
    upgrade = deploy("dev", tmp_path, {**changes, "k3sVersion": "v1.34.3+k3s1"}, ("httpProxy",))
    assert upgrade.one("doctor-host").inputs != doctor.inputs
    assert "trainer:" not in doctor.inputs["stdin"]

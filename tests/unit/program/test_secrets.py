"""Secrets of the settings are nowhere in plain text, and pods get theirs by a Secret."""

import json
from pathlib import Path

import pulumi
import pytest

from tests.unit.program.parts import training_template
from tests.unit.program.secret_settings import SECRET_KEYS, SECRETS
from tests.unit.stacks import deploy, without_secrets


def test_secrets_are_nowhere_in_plain_text(tmp_path: Path) -> None:
    """The secrets of the settings reach the resources that need them, and are in plain text in no
    input, in no component's outputs and in no output of the stack.
    """
    result = deploy("dev", tmp_path, SECRETS, SECRET_KEYS)
    everything = json.dumps([resource.inputs for resource in result.resources])
    assert everything.count("hunter1") >= 1
    assert everything.count("hunter2") >= 1
    assert everything.count("proxy-hunter3") >= 4
    for resource in result.resources:
        for shown in (without_secrets(resource.wire), result.component_outputs.get(resource.urn)):
            assert "hunter" not in json.dumps(shown), resource.name
    assert "hunter" not in json.dumps(result.outputs)


def test_secrets_are_on_no_command_line(tmp_path: Path) -> None:
    result = deploy("dev", tmp_path, SECRETS, SECRET_KEYS)
    commands = [r for r in result.resources if r.type.startswith("command:")]
    assert len(commands) == 24
    for command in commands:
        for key in ("create", "update", "delete"):
            assert "hunter" not in command.inputs.get(key, ""), (command.name, key)


def test_kubeconfig_of_our_k3s_is_a_secret(tmp_path: Path) -> None:
    """The kubeconfig of this stack's k3s is a secret, and the command that fetches it logs
    nothing.
    """
    result = deploy("dev", tmp_path)
    (provider,) = result.of_type("pulumi:providers:kubernetes")
    assert without_secrets(provider.wire)["kubeconfig"] == "[secret]"
    assert result.one("cluster-kubeconfig").inputs["logging"] == "none"


def test_key_of_a_run_is_a_secret_that_only_its_pods_get(tmp_path: Path) -> None:
    """The key of a run is a secret for the engine, and the training's pods get it by a Secret."""
    result = deploy("multipod", tmp_path)
    name = result.one("run-key-secret").inputs["metadata"]["name"]
    environment = training_template(result)["spec"]["containers"][0]["env"]
    (key,) = (entry for entry in environment if entry["name"] == "DISTTRAIN_RUN_KEY")
    assert key["valueFrom"]["secretKeyRef"] == {"name": name, "key": "key"}
    assert without_secrets(result.one("run-key-secret").wire)["data"] == "[secret]"
    assert "stdout" in result.one("run-key-random").request.additionalSecretOutputs


def test_secret_variables_reach_the_pod_by_a_secret(tmp_path: Path) -> None:
    """`podSecrets` reach the training's pods by a Secret, and are nowhere in plain text."""
    changes = {"podSecrets": {"AWS_SECRET_ACCESS_KEY": "hunter2"}}
    result = deploy("sandbox", tmp_path, changes, ["podSecrets"])
    secret = result.one("pod-secrets-secret")
    assert secret.inputs["data"] == {"AWS_SECRET_ACCESS_KEY": "aHVudGVyMg=="}
    (container,) = training_template(result)["spec"]["containers"]
    name = secret.inputs["metadata"]["name"]
    assert {"secretRef": {"name": name}} in container["envFrom"]
    for resource in result.resources:
        assert "aHVudGVyMg==" not in str(without_secrets(resource.wire))
        assert "hunter2" not in str(resource.wire)


def test_secret_variables_in_plain_text_are_refused_unseen(tmp_path: Path) -> None:
    """`podSecrets` in plain text are refused with the command to encrypt them, and are not
    shown.
    """
    for variables in ({"AWS_SECRET_ACCESS_KEY": "hunter2"}, {"RANK": "hunter2"}):
        with pytest.raises(pulumi.RunError, match="config set --secret --path") as failure:
            deploy("sandbox", tmp_path, {"podSecrets": variables})
        assert "hunter2" not in str(failure.value)

"""`verify`: a run that is measured before its first step or examined after it."""

import json
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from tests.unit.stacks import Deployment, deploy


def run_yaml(deployment: Deployment) -> dict[str, Any]:
    return yaml.safe_load(deployment.one("run-config-map").inputs["data"]["run.yaml"])


def test_verify_before_measures_before_the_first_step(tmp_path: Path) -> None:
    asked = deploy("sandbox", tmp_path, {"verify": "before"})
    assert run_yaml(asked)["train"]["smoke_test"] is True
    assert run_yaml(deploy("sandbox", tmp_path))["train"]["smoke_test"] is False
    overrides = {"verify": "before", "run": {"train": {"smoke_test": False}}}
    with pytest.raises(pulumi.RunError, match=r"run\.train\.smoke_test: false .* verify is before"):
        deploy("sandbox", tmp_path, overrides)


def test_verify_after_looks_once_the_ranks_have_stepped(tmp_path: Path) -> None:
    """With `verify: after`, the run has a command that examines it. The other choices have no such
    command.
    """
    made = deploy("sandbox-multipod", tmp_path, {"verify": "after"})
    command = made.one("verification-look")
    job = json.loads(command.program)
    assert "cli.verify.at_up verify create" in command.inputs["create"]
    assert job["place"]["workload"] == "train-multipod"
    assert job["place"]["world_size"] == 3
    assert job["uid"] == "uid-of-training-stateful-set"
    assert set(made.component_outputs[made.one("verification").urn]) == {"report"}
    for other in ("never", "before"):
        without = deploy("sandbox-multipod", tmp_path, {"verify": other})
        assert not without.of_type("disttrain:infra:Verification")

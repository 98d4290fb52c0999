"""One platform, and the stacks whose runs are on it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra.platform.facts import facts_from_text
from tests.unit.program.parts import keys
from tests.unit.program.resources import COMPONENTS, ON_K3S, OWNERS, PLATFORM
from tests.unit.stacks import RecordingMonitor, deploy, raw_settings, run_with


@pytest.mark.parametrize(("owner", "other"), [("dev", "multipod"), ("sandbox", "sandbox-multipod")])
def test_no_object_is_in_the_state_of_two_stacks(owner: str, other: str, tmp_path: Path) -> None:
    """The platform's stack and the stack of a run have no object in common. Otherwise both would
    own k3s, the Helm release and the namespace, and each could change or delete them.
    """
    assert keys(deploy(owner, tmp_path)) & keys(deploy(other, tmp_path)) == set()


def test_run_on_another_platform_needs_nothing_of_the_host(tmp_path: Path) -> None:
    """A run on another stack's platform runs no command on the host and needs no access to it."""
    result = deploy("multipod", tmp_path)
    assert result.of_type("command:remote:Command") == []
    commands = result.of_type("command:local:Command")
    assert commands
    for command in commands:
        words = command.inputs["create"]
        assert words.startswith(".venv/bin/python -"), words
        assert not any(word in words for word in ("ssh", "ctr", "infra.image"))


@pytest.mark.parametrize("outputs", [None, {}], ids=["no such stack", "not up"])
def test_platform_that_is_not_up_is_said_with_both_ways_out(outputs: dict[str, Any] | None) -> None:
    """A platform that does not exist or is not up is refused with both ways out, and no command is
    registered. tests/node/test_platform.py has it from the real engine.
    """
    monitor = RecordingMonitor(outputs)
    with pytest.raises(pulumi.RunError) as failure:
        run_with(monitor, "multipod", raw_settings("multipod"))
    assert "platform: 'dev' cannot be used: no stack of this name is up" in str(failure.value)
    assert "pulumi up --stack dev" in str(failure.value)
    assert 'pulumi config set platform ""' in str(failure.value)
    assert [r for r in monitor.deployment.resources if r.type.startswith("command:")] == []


def test_platform_of_another_passphrase_is_said_to_be_locked(tmp_path: Path) -> None:
    """A platform whose kubeconfig this shell cannot decrypt is up all the same. The engine gives an
    empty object for such an output, and only notes that it has done so.
    """
    outputs = {**deploy("dev", tmp_path).outputs, "kubeconfig": {}}
    with pytest.raises(pulumi.RunError) as failure:
        run_with(RecordingMonitor(outputs), "multipod", raw_settings("multipod"))
    said = str(failure.value)
    assert said.startswith("platform: 'dev' cannot be used: that stack is up, but its kubeconfig")
    assert "pulumi stack change-secrets-provider passphrase --stack " in said
    assert "no stack of this name is up" not in said


def test_platform_that_cannot_be_read_is_said_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the backend cannot give the outputs of the platform's stack, such as without the key of
    its secrets, the error names the setting, the reason and a command to try.
    """

    async def refuse(*_: object) -> None:
        raise Exception("invoke failed: no valid credential sources found")

    monkeypatch.setattr("infra.platform.reference.invoke_async", refuse)
    with pytest.raises(pulumi.RunError) as failure:
        run_with(RecordingMonitor({}), "multipod", raw_settings("multipod"))
    said = str(failure.value)
    assert said.startswith("platform: 'dev' cannot be used: the outputs of that stack cannot be re")
    assert "no valid credential sources found" in said
    assert "`pulumi stack output --stack dev --show-secrets` works" in said


def test_platform_that_is_the_stack_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(pulumi.RunError, match="is this stack itself"):
        deploy("dev", tmp_path, {"platform": "dev"})


@pytest.mark.parametrize(
    ("text", "version"), [("{version: 1, stack: dev}", "1"), ({"stack": "dev"}, "unknown")]
)
def test_platform_of_another_version_is_brought_up_first(text: object, version: str) -> None:
    """The output of a platform of another version is refused, with the version that it has."""
    monitor = RecordingMonitor({"platform": text, "kubeconfig": "k"})
    with pytest.raises(pulumi.RunError, match=f"has version {version}, and this program reads"):
        run_with(monitor, "multipod", raw_settings("multipod"))


@pytest.mark.parametrize("stack", OWNERS)
def test_output_for_other_stacks_is_one_line_of_the_screen(stack: str, tmp_path: Path) -> None:
    """Each output is a single value, and the one for other stacks is one line. `pulumi up` would
    show an object, or a text that is JSON, on 20 lines. tests/node/test_platform.py looks at the
    screen.
    """
    outputs = deploy(stack, tmp_path).outputs
    assert all(isinstance(value, str | int | float) for value in outputs.values())
    text = outputs["platform"]
    assert "\n" not in text
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(text)
    facts, generation = facts_from_text(text)
    assert facts.to_text(generation) == text


def test_setting_of_the_platform_is_refused_on_a_run_stack(tmp_path: Path) -> None:
    """A setting of the platform is refused in the stack of a run, with the command for the
    platform's stack.
    """
    with pytest.raises(pulumi.RunError) as failure:
        deploy("multipod", tmp_path, {"k3sVersion": "v1.30.0+k3s1"})
    assert "k3sVersion" in str(failure.value)
    assert "pulumi config set --stack dev k3sVersion" in str(failure.value)


def test_stack_without_a_run_makes_the_platform_alone(tmp_path: Path) -> None:
    result = deploy("dev", tmp_path, {"topology": "none"})
    found = {f"{r.type} {r.name}" for r in result.resources if r.type not in COMPONENTS}
    assert found == PLATFORM | ON_K3S
    assert "runName" not in result.outputs


def test_changed_code_is_delivered_by_the_platforms_stack_first(tmp_path: Path) -> None:
    """If the trainer's code has changed, a run on another platform is refused until that platform's
    stack has brought the new image.
    """
    outputs = dict(deploy("dev", tmp_path).outputs)
    facts, generation = facts_from_text(outputs["platform"])
    old = replace(facts.image, reference="localhost/disttrain/trainer:old-old")
    outputs["platform"] = replace(facts, image=old).to_text(generation)
    monitor = RecordingMonitor(outputs)
    with pytest.raises(pulumi.RunError, match="pulumi up --stack dev"):
        run_with(monitor, "multipod", raw_settings("multipod"))

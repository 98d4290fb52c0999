"""The commands find a stack's run, also while its first `pulumi up` goes on or after it has
failed.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from cli import pulumi_outputs, stack_outputs
from cli.pulumi_outputs import early_outputs
from cli.stack_outputs import cluster_place, run_length, run_place, volume_place
from infra.names import EARLY_OUTPUTS
from infra.outputs import KNOWN_LATE
from tests.unit.stacks import deploy

SECRET_MARK = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270"}


def state_of(stack: str, scratch: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the stack's outputs, and the state that the engine would print before there are
    outputs.
    """
    made = deploy(stack, scratch)
    (component,) = made.of_type(EARLY_OUTPUTS)
    known = dict(made.component_outputs[component.urn]["known"])
    known["kubeconfig"] = {**SECRET_MARK, "plaintext": json.dumps(known["kubeconfig"])}
    (job,) = [
        command.inputs["stdin"]
        for command in made.of_type("command:local:Command")
        if command.name == "training-hand-over"
    ]
    words = {"create": ".venv/bin/python -m infra.kube hand-over create"}
    resources = [
        {"type": "pulumi:pulumi:Stack"},
        {"inputs": {**words, "stdin": {**SECRET_MARK, "plaintext": json.dumps(job)}}},
        {"type": EARLY_OUTPUTS, "outputs": {"known": known}},
    ]
    return made.outputs, {"version": 3, "deployment": {"resources": resources}}


@pytest.mark.parametrize("stack", ["dev", "sandbox", "multipod"])
def test_first_up_that_failed_can_be_looked_at(
    stack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands find the run of a stack that has no outputs yet, from the stack's state. The
    engine notes outputs only after an `up` that has ended well.
    """
    outputs, state = state_of(stack, tmp_path)

    def ask(words: list[str]) -> str:
        return json.dumps(state if words[1] == "export" else {})

    monkeypatch.setattr(pulumi_outputs, "ask_pulumi", ask)
    place = run_place(stack)
    assert place == stack_outputs.parse_run(outputs, stack)
    assert cluster_place(stack).access == place.access
    late = {"platform", "imageDigest", "hostDataPath", *KNOWN_LATE}
    assert early_outputs(state) == {k: v for k, v in outputs.items() if k not in late}


@pytest.mark.parametrize("has_taken_place", [True, False])
def test_run_that_a_later_up_has_begun_is_meant(
    has_taken_place: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands mean the new run when an `up` with another runName goes on or has failed after
    it took the platform. The stack's outputs are still those of the `up` before.

    If the new run was refused because another run was there, the commands still mean the run of
    before.
    """
    outputs, state = state_of("dev", tmp_path)
    hand_over = state["deployment"]["resources"][1]
    if not has_taken_place:
        job = json.dumps(json.dumps({"run": "before"}))
        hand_over["inputs"]["stdin"]["plaintext"] = job
    before = {**outputs, "runPath": "/data/runs/before", "image": "image-of-before"}

    def ask(words: list[str]) -> str:
        return json.dumps(state if words[1] == "export" else before)

    monkeypatch.setattr(pulumi_outputs, "ask_pulumi", ask)
    wanted = outputs if has_taken_place else before
    assert run_place("dev") == stack_outputs.parse_run(wanted, "dev")
    assert volume_place("dev") == stack_outputs.parse_volume(wanted, "dev")


def test_outputs_that_are_there_are_not_asked_for_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the stack's outputs are there, the stack's state is not asked for."""

    def ask(words: list[str]) -> str:
        assert words[1] == "output"
        return json.dumps({"kubeconfig": "/k", "namespace": "here"})

    monkeypatch.setattr(pulumi_outputs, "ask_pulumi", ask)
    assert cluster_place("dev").namespace == "here"


def test_stack_that_was_never_up_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(words: list[str]) -> str:
        return json.dumps({} if words[1] == "output" else {"version": 3, "deployment": {}})

    monkeypatch.setattr(pulumi_outputs, "ask_pulumi", ask)
    with pytest.raises(ValueError, match="stack dev is not up: its outputs lack kubeconfig"):
        cluster_place("dev")
    with pytest.raises(ValueError, match=r"stack dev is not up: .* Run `pulumi up` first"):
        run_place("dev")


def test_stack_that_is_up_without_a_run_is_told_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outputs = {"kubeconfig": "/k", "namespace": "here", "owner": "o", "image": "i", "claim": "c"}

    def ask(words: list[str]) -> str:
        return json.dumps(outputs if words[1] == "output" else {"version": 3, "deployment": {}})

    monkeypatch.setattr(pulumi_outputs, "ask_pulumi", ask)
    told = "stack dev has no run: its outputs lack runPath, workload. Name a stack that has one by "
    with pytest.raises(ValueError, match=told):
        run_place("dev")


def test_run_of_an_older_version_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack has a run, but an older version has brought it up, which did not write an output that
    a command needs. The error does not say that the stack has no run, but how to get the output.
    """
    outputs = {"kubeconfig": "/k", "runPath": "runs/a"}

    def ask(words: list[str]) -> str:
        return json.dumps(outputs if words[1] == "output" else {"version": 3, "deployment": {}})

    monkeypatch.setattr(pulumi_outputs, "ask_pulumi", ask)
    told = (
        r"stack dev was brought up by an older version of disttrain: its outputs lack maxSteps\. "
        r"Run `pulumi up` of the stack with this checkout"
    )
    with pytest.raises(ValueError, match=told):
        run_length("dev")


def test_missing_pulumi_is_told_with_what_works_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/no/such")
    with pytest.raises(ValueError, match="no program `pulumi` on PATH") as told:
        pulumi_outputs.ask_pulumi(["stack", "ls"])
    assert "./disttrain status --kubeconfig FILE" in str(told.value)

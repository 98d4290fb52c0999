"""Commands that read what the project's trainer writes refuse a run of a user's own program."""

from typing import Any

import pytest

from cli import stack_outputs
from cli.__main__ import main
from cli.stack_outputs import parse_run

OUTPUTS = {
    "kubeconfig": "/no/kubeconfig",
    "namespace": "disttrain",
    "owner": "o",
    "image": "i",
    "runPath": "/data/runs/mine",
    "workload": "train-multipod",
    "claim": "c",
    "program": "python train.py",
    "maxSteps": 0,
}


@pytest.mark.parametrize("words", [["sample"], ["verify"], ["extend", "--steps", "9"]])
def test_command_for_our_trainer_says_which_program_runs(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`sample`, `verify` and `extend` end with 2 for a run of a user's own program, and name that
    program.
    """

    def outputs(_: str, __: object, **___: bool) -> dict[str, Any]:
        return OUTPUTS

    monkeypatch.setattr(stack_outputs, "outputs_of", outputs)
    assert main(words) == 2
    said = capsys.readouterr().err
    assert f"{words[0]}: it cannot be used for this run, whose program is `python train.py`" in said


def test_stack_from_before_programs_has_our_trainer() -> None:
    """The run of a stack whose outputs lack `program` is taken for a run of the project's
    trainer.
    """
    assert parse_run({k: v for k, v in OUTPUTS.items() if k != "program"}, "dev").program == ""

"""The recording engine of tests/unit/stacks.py, which all tests of the program share."""

from pathlib import Path

import pulumi
import pytest

from tests.unit.stacks import deploy, own_event_loop


def test_output_of_another_test_holds_no_program_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program ends although another test has made an output outside of a program. Otherwise a
    worker of the engine would wait forever.
    """
    monkeypatch.setattr("tests.unit.stacks.LONGEST_SECONDS", 20.0)
    with own_event_loop() as loop:
        output = pulumi.Output.from_input("")
        assert deploy("sandbox", tmp_path).outputs
        loop.run_until_complete(output.future())

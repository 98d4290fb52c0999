"""A mistake gets one message, which shows what the user has written, and says how to write it."""

from typing import Any

import pytest

from tests.unit.settings.form import FORM
from tests.unit.settings.reading import refusal

ONE_MESSAGE: list[tuple[dict[str, Any], str]] = [
    ({"podEnvironment": {"A": None}}, "podEnvironment.A: null cannot be used: it is not a single"),
    ({"program": {"command": None}}, "program.command: null cannot be used: it names no program"),
    ({"run": {"train": {"max_steps": None}}}, "run.train.max_steps: null cannot be used: it is n"),
    ({"run": {"train": {"max_steps": True}}}, "run.train.max_steps: true cannot be used: it is n"),
    ({"tolerations": [{"key": None, "operator": "Exists"}]}, "null cannot be the key of a taint"),
]


def lines_of(said: str) -> list[str]:
    """Return the messages of a refusal, one an item."""
    return [line for line in said.splitlines() if line.startswith("  - ")]


@pytest.mark.parametrize(("changes", "words"), ONE_MESSAGE)
def test_a_mistake_gets_one_message(changes: dict[str, Any], words: str) -> None:
    """A second message about the same mistake would show a value that nobody has written, such as
    `preset: ''`. `None` and `True` are no words of a stack's file.
    """
    (line,) = lines_of(refusal(changes))
    assert words in line
    assert FORM.match(line.replace('"', "'"))

"""How a value that cannot be used is described: its key, why, and what to do. Pure."""

from __future__ import annotations

from collections.abc import Sequence


class ConfigError(ValueError):
    """The run configuration is wrong; the message lists every problem at once."""

    def __init__(self, problems: Sequence[str]):
        self.problems = tuple(problems)
        super().__init__("\n".join(["the run configuration is not valid:", *self.problems]))


def problem_text(key: str, value: object, reason: str, remedy: str) -> str:
    """One problem.

    Args:
        key: the option, as the user wrote it.
        value: what is set.
        reason: why it cannot be used; goes on after a colon, without a full stop.
        remedy: what to do, as a sentence without its full stop.
    """
    return f"{key}: {value!r} cannot be used: {reason}. {remedy}."


def either(choices: Sequence[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def did_you_mean(candidates: Sequence[str]) -> str:
    """The end of a sentence that names `candidates`, or nothing where there are none."""
    return f" (did you mean {' or '.join(candidates)}?)" if candidates else ""

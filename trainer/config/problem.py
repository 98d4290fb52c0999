"""Describes a value that cannot be used: its key, the reason, and the remedy. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

LOGIN = re.compile(r"(?<=://)[^\s/?#'\"<>]*@")
"""The user and the password in an address."""


class ConfigError(ValueError):
    """The run configuration is wrong. The message lists all problems at once."""

    def __init__(self, problems: Sequence[str]):
        self.problems = tuple(problems)
        super().__init__("\n".join(["the run configuration is not valid:", *self.problems]))


def problem_text(key: str, value: object, reason: str, remedy: str) -> str:
    """Describe one problem in a line. The user and password of an address are not shown.

    Args:
        key: The option, as the user wrote it.
        value: The value that is set.
        reason: Why the value cannot be used. It follows a colon, and has no full stop.
        remedy: What the user should do, as a sentence without its full stop.
    """
    shown = LOGIN.sub("[secret]@", shown_value(value))
    return f"{key}: {shown} cannot be used: {reason}. {remedy}."


def shown_value(value: object) -> str:
    """Return a value for messages: nothing, true and false as YAML writes them, and not Python."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return repr(value)


def either(choices: Sequence[str]) -> str:
    """Join texts with `or`: `a`, `a or b`, `a, b or c`."""
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def did_you_mean(candidates: Sequence[str]) -> str:
    """Return the end of a sentence that names `candidates`, or an empty text without any."""
    return f" (did you mean {' or '.join(candidates)}?)" if candidates else ""

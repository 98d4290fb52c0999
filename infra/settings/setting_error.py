"""Describes a value that cannot be used: why it cannot, and what to do."""

from typing import NamedTuple


class SettingError(ValueError):
    """A value cannot be used.

    Args:
        reason: why it cannot be used. The text follows a colon and has no full stop.
        hint: what to do, as a sentence without its full stop.
    """

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(f"{reason}. {hint}.")
        self.reason = reason
        self.hint = hint


class Problem(NamedTuple):
    """A problem in the settings.

    Args:
        key: the key that the problem is about, such as `run.train.max_steps` or `nodes[0].name`.
        text: the whole message, which begins with the key.
    """

    key: str
    text: str


def problem_text(key: str, shown: str, reason: str, hint: str) -> str:
    """Return the text of one problem: key, value, why it cannot be used, and what to do."""
    return f"{key}: {shown} cannot be used: {reason}. {hint}."

"""Prints lines at once, and cuts them for Pulumi's command plugin, which takes 64 KiB a line.

What pods have written is printed without sequences that steer a terminal.
"""

from collections.abc import Sequence
from typing import TextIO

from infra.command_line import without_control, without_passwords

MAX_LINE_CHARACTERS = 500
MAX_ERROR_CHARACTERS = 8000  # an error ends with what the user has to type, so it is shown whole
ERROR = "error: "  # A failed task of infra.kube prints the reason on a line that begins like this.


def say(text: str, to: TextIO | None = None) -> None:
    """Print the lines of `text` without passwords, each cut to MAX_LINE_CHARACTERS.

    `to`: the standard output, or another open file.
    """
    _print(text, MAX_LINE_CHARACTERS, to)


def say_error(text: str) -> None:
    """Print why a task has failed, after ERROR and without passwords."""
    _print(f"{ERROR}{text}", MAX_ERROR_CHARACTERS)


def _print(text: str, characters: int, to: TextIO | None = None) -> None:
    for line in without_passwords(text).splitlines() or [""]:
        print(without_control(line)[:characters], file=to, flush=True)


def last_line(stderr: str) -> str:
    """The last line that a program has printed, which mostly is its error."""
    return (stderr.strip().splitlines() or ["no error text"])[-1]


def first_of(texts: Sequence[str], most: int, between: str = ", ") -> str:
    """The first texts joined, and how many more there are: `a, b, and 3 more`.

    Args:
        texts: the texts, such as names.
        most: how many of them are shown.
        between: what separates them.
    """
    more = len(texts) - most
    return between.join([*texts[:most], *([f"and {more} more"] if more > 0 else [])])


def shorten(text: str, characters: int = MAX_LINE_CHARACTERS) -> str:
    """The text on one line, cut to at most `characters` characters, which steer no terminal."""
    line = without_control(" ".join(text.split()))
    return line if len(line) <= characters else line[: characters - 3] + "..."

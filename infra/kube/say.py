"""Prints lines at once, and cuts them for Pulumi's command plugin, which takes 64 KiB a line."""

from typing import TextIO

from infra.command_line import without_passwords

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
        print(line[:characters], file=to, flush=True)


def shorten(text: str, characters: int = MAX_LINE_CHARACTERS) -> str:
    """The text on one line, cut to at most `characters` characters."""
    line = " ".join(text.split())
    return line if len(line) <= characters else line[: characters - 3] + "..."

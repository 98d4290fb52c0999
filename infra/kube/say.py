"""Prints lines at once, and cuts them for Pulumi's command plugin, which takes 64 KiB a line."""

from typing import TextIO

from infra.command_line import without_passwords

MAX_LINE_CHARACTERS = 500
ERROR = "error: "  # A failed task of infra.kube prints the reason on a line that begins like this.


def say(text: str, to: TextIO | None = None) -> None:
    """Print the lines of `text` without passwords, each cut to MAX_LINE_CHARACTERS.

    `to`: the standard output, or another open file.
    """
    for line in without_passwords(text).splitlines() or [""]:
        print(line[:MAX_LINE_CHARACTERS], file=to, flush=True)


def shorten(text: str, characters: int = MAX_LINE_CHARACTERS) -> str:
    """The text on one line, cut to at most `characters` characters."""
    line = " ".join(text.split())
    return line if len(line) <= characters else line[: characters - 3] + "..."

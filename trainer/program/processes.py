"""Reads about the processes of this container from /proc (Linux only)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process. `has_ended`: it has ended, and its exit status was not read yet."""

    pid: int
    parent: int
    group: int
    has_ended: bool


def processes() -> Iterator[Process]:
    """Yield each process that there is now. One that ends meanwhile may be left out."""
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError):  # the process has ended meanwhile
            state, parent, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            yield Process(int(folder.name), int(parent), int(group), state == "Z")


def command_line(pid: int) -> list[str]:
    """Return the words with which a process was started; none if it has ended."""
    return _texts(pid, "cmdline")


def variables(pid: int) -> dict[str, str]:
    """Return the variables with which a process was started; none if they cannot be read."""
    pairs = (each.partition("=") for each in _texts(pid, "environ"))
    return {name: value for name, _, value in pairs}


def _texts(pid: int, file: str) -> list[str]:
    """Return the texts of a file of a process, each of which ends with a zero byte."""
    try:
        return (_PROC / str(pid) / file).read_text(errors="replace").split("\0")
    except OSError:
        return []

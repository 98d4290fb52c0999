"""Ends what a program has left behind, so that nothing of one start holds GPUs in the next.

A killed torchrun leaves its workers, a shell its background jobs. Linux gives such orphans to the
nearest ancestor that has asked for them, which here is the entrypoint. It knows the processes that
it has started itself. Every other child of it is an orphan, whatever its name and its variables.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LIMIT_SECONDS = 10.0
_POLL_SECONDS = 0.01
_PROC = Path("/proc")
_SET_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)


def take_orphans() -> None:
    """Become the parent of orphans among the descendants of this process (Linux only)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_leftovers(own: Collection[int]) -> list[int]:
    """Kill all processes of a start, whose first ones have ended.

    Each pass ends the orphans that are there; their own children are orphans in the next one.

    Args:
        own: processes that this one has started itself, and that go on.

    Returns:
        The processes that still run after LIMIT_SECONDS, as some do that wait for a device.
    """
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        reap(own)
        left = list(orphans(own))
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(_POLL_SECONDS)


def orphans(own: Collection[int]) -> dict[int, int]:
    """The orphans that have not ended: the process group of each.

    Args:
        own: processes that this one has started itself.
    """
    return {child.pid: child.group for child in _others(own) if not child.has_ended}


def reap(own: Collection[int]) -> None:
    """Let go of the orphans that have ended, which would stay in the table of processes.

    Args:
        own: processes that this one has started itself, and whose exit status somebody waits for.
    """
    for child in _others(own):
        if child.has_ended:
            with suppress(ChildProcessError):
                os.waitpid(child.pid, os.WNOHANG)


@dataclass(frozen=True)
class _Child:
    """A child of this process, and whether it has ended and nobody has asked yet how."""

    pid: int
    group: int
    has_ended: bool


def _others(own: Collection[int]) -> list[_Child]:
    """All children of this process but its own."""
    found = list[_Child]()
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError):  # it has gone meanwhile
            state, parent, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(parent) == os.getpid() and int(folder.name) not in own:
                found.append(_Child(int(folder.name), int(group), state == "Z"))
    return found

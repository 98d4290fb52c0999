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
        left = list(orphans(own))
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(_POLL_SECONDS)


def orphans(own: Collection[int]) -> dict[int, int]:
    """The orphans that have not ended: the process group of each.

    Args:
        own: processes that this one has started itself.
    """
    found = dict[int, int]()
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            state, parent, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(parent) == os.getpid() and state != "Z" and int(folder.name) not in own:
                found[int(folder.name)] = int(group)
    return found

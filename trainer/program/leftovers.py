"""Ends what a program has left behind, so that nothing of one start holds GPUs in the next.

A killed torchrun leaves its workers, a shell its background jobs. Linux gives such orphans to the
nearest ancestor that has asked for them, which here is the entrypoint.
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

MARK_VARIABLE = "DISTTRAIN_START"
"""Its value is different for each start, and all processes of the start inherit it."""
LIMIT_SECONDS = 10.0
_POLL_SECONDS = 0.01
_PROC = Path("/proc")
_SET_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)


def take_orphans() -> None:
    """Become the parent of orphans among the descendants of this process (Linux only)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_leftovers(start: str) -> list[int]:
    """Kill all processes of a start, whose first ones have ended.

    Each pass ends the orphans that are there; their own children are orphans in the next one.

    Returns:
        The processes that still run after LIMIT_SECONDS, as some do that wait for a device.
    """
    mark, deadline = f"{MARK_VARIABLE}={start}".encode(), time.monotonic() + LIMIT_SECONDS
    while True:
        left = [pid for pid in _children() if _belongs(pid, mark)]
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(_POLL_SECONDS)


def orphans_in(first: Collection[int], start: str) -> list[int]:
    """The orphans in the process groups of a start, such as a program whose shell has ended.

    Args:
        first: the processes that were started, each of which began a group.
        start: which one.
    """
    mark = f"{MARK_VARIABLE}={start}".encode()
    orphans = {pid: group for pid, group in _children().items() if pid not in first}
    return [pid for pid, group in orphans.items() if group in first and _belongs(pid, mark)]


def _children() -> dict[int, int]:
    """Of this process, without those that have ended: the process group of each."""
    found = dict[int, int]()
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            state, parent, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(parent) == os.getpid() and state != "Z":
                found[int(folder.name)] = int(group)
    return found


def _belongs(pid: int, mark: bytes) -> bool:
    """Whether it has the mark. A process that is just being executed has no variables yet."""
    deadline = time.monotonic() + LIMIT_SECONDS
    with suppress(OSError):
        while time.monotonic() < deadline:
            variables = (_PROC / str(pid) / "environ").read_bytes()
            state = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
            if variables or state == "Z":
                return mark in variables.split(b"\0")
            time.sleep(_POLL_SECONDS)
    return False

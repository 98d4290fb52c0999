"""Ends processes that a program has left behind, so that they hold no GPUs in the next start.

A killed torchrun leaves its workers behind, and a shell its background jobs. Linux makes such
orphans children of the nearest ancestor that has asked for them, which here is the entrypoint. The
entrypoint knows the processes that it has started itself. Every other child is an orphan, whatever
its name and its variables.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection
from contextlib import suppress

from trainer.program.processes import Process, command_line, processes

LIMIT_SECONDS = 10.0
_POLL_SECONDS = 0.01
_SET_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)


def take_orphans() -> None:
    """Become the parent of orphans among the descendants of this process (Linux only)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_leftovers(own: Collection[int]) -> list[int]:
    """Kill all processes that are left of a start, after its first processes have ended.

    Each pass kills the present orphans; in the next pass, their own children are orphans.

    Args:
        own: The ids of the processes that this process has started itself and that go on.

    Returns:
        The ids of the processes that still run after LIMIT_SECONDS. Processes that wait for a
        device may do so.
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
    """Return the process ids of the orphans that have not ended, with the process group of each.

    Args:
        own: The ids of the processes that this process has started itself.
    """
    return {child.pid: child.group for child in _others(own) if not child.has_ended}


def reap(own: Collection[int]) -> None:
    """Remove the orphans that have ended from the system's table of processes.

    Args:
        own: The ids of the processes that this process has started itself. Their exit status is
            needed elsewhere, so they are left alone.
    """
    for child in _others(own):
        if child.has_ended:
            with suppress(ChildProcessError):
                os.waitpid(child.pid, os.WNOHANG)


def command_of(pid: int) -> str:
    """Return the first two words of a process, such as `python train.py`; empty if it has ended.

    Later words may be secrets, which do not belong into the log.
    """
    return " ".join(command_line(pid)[:2]).strip()


def _others(own: Collection[int]) -> list[Process]:
    """Return the children of this process that it has not started itself."""
    here = os.getpid()
    return [each for each in processes() if each.parent == here and each.pid not in own]

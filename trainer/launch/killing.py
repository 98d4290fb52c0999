"""Kills a process without waiting forever for its end.

A process in an uninterruptible sleep ends only when the sleep does. If it waits for an NFS server
that is gone, that may be never.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress

KILLED_SECONDS = 5.0
"""How long to wait for the end of a killed process; the kernel usually needs milliseconds."""


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process, and wait at most `KILLED_SECONDS` for its end."""
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(KILLED_SECONDS)

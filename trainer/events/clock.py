"""Reads the clocks with which events are stamped, and the age of this process."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from trainer.events.event import Event

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def stamped(name: str, values: Mapping[str, Any]) -> Event:
    """Return an event that happens now."""
    return Event(name, time.time(), time.monotonic(), boot_identity(), values)


@cache
def boot_identity() -> str:
    """Return an id of this boot of this machine, which is the same for all its processes.

    If the system does not have one, the result is the host name.
    """
    try:
        return _BOOT_ID.read_text().strip()[:8]
    except OSError:
        return socket.gethostname()


def process_age_seconds() -> float:
    """Return the seconds since this process was started; 0 if the system has no /proc."""
    try:
        started_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        uptime_seconds = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0.0
    return round(max(0.0, uptime_seconds - started_ticks / os.sysconf("SC_CLK_TCK")), 3)

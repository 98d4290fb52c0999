"""Waits until rank 0 listens for the other ranks, which is sooner seen here than by torch.

Rank 0 comes last where its pod was made again: it has to import torch first, while the other ranks
have it. torch's client of the store tries again after pauses that grow to more than a second, and
all ranks lose what is left of the longest pause.
"""

from __future__ import annotations

import os
import socket
import time

_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 0.5
_OFTEN_ASKING_RANKS = 64
_CONNECT_SECONDS = 1.0


def await_store(rank: int, world_size: int, limit_seconds: float) -> None:
    """Return when something listens at MASTER_ADDR and MASTER_PORT, or the time is over.

    torch says what is wrong then. A connection that is closed at once does not disturb the store.
    """
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if rank == 0 or not address or not port.isdecimal():
        return
    deadline = time.monotonic() + limit_seconds
    while time.monotonic() < deadline:
        try:
            socket.create_connection((address, int(port)), _CONNECT_SECONDS).close()
            return
        except (OSError, UnicodeError):
            time.sleep(pause_seconds(world_size))


def pause_seconds(world_size: int) -> float:
    """Between two attempts of one rank: thousands of ranks together do not ask more often. Pure."""
    share = max(1.0, world_size / _OFTEN_ASKING_RANKS)
    return min(_PAUSE_SECONDS * share, _LONGEST_PAUSE_SECONDS)

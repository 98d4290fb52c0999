"""Waits until rank 0 listens for the other ranks, and notices it sooner than torch does.

If the pod of rank 0 was made again, rank 0 comes last: it has to import torch first, which the
other ranks have done. torch's client of the store repeats its attempts after pauses that grow to
more than a second. Then all ranks wait until the longest of these pauses has ended.
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
    """Return when a process listens at MASTER_ADDR and MASTER_PORT, or after `limit_seconds`.

    After the limit, torch reports the error. A connection that is closed at once does not disturb
    the store.
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
    """The pause between two attempts of one rank. Pure.

    It grows with the number of ranks, up to a limit, so that thousands of ranks do not flood rank 0
    with attempts.
    """
    share = max(1.0, world_size / _OFTEN_ASKING_RANKS)
    return min(_PAUSE_SECONDS * share, _LONGEST_PAUSE_SECONDS)

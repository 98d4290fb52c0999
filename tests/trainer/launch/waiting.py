"""Waits for conditions that other threads bring about."""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT_SECONDS = 60.0  # the longest wait, on a busy machine too


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds, and fail if it does not within `LIMIT_SECONDS`."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)

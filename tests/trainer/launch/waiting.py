"""Waits for what other threads do."""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT_SECONDS = 60.0  # for what has to happen, on a busy machine too


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)

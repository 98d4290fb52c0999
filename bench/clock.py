"""Measures how long a call takes."""

import time
from collections.abc import Callable


def seconds_of(action: Callable[[], object]) -> float:
    """How many seconds a call takes."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin

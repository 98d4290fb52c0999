"""Waits for a condition with a time limit, and says what it waited for if the limit is reached."""

import time
from collections.abc import Callable

INTERVAL_SECONDS = 0.1


def wait_until(what: str, missing: Callable[[], str | None], *, timeout_seconds: float) -> None:
    """Call `missing` until it returns None. A text that it returns says what is still missing.

    Raises:
        TimeoutError: the text names `what`, the limit and the last answer.
    """
    deadline = time.monotonic() + timeout_seconds
    while (reason := missing()) is not None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_seconds:g} s for {what}: {reason}")
        time.sleep(INTERVAL_SECONDS)

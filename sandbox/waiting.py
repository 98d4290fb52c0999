"""Every wait has a limit and says what it waited for."""

import time
from collections.abc import Callable

INTERVAL_SECONDS = 0.1


def wait_until(what: str, missing: Callable[[], str | None], *, timeout_seconds: float) -> None:
    """Poll until `missing()` returns None; any text it returns says what is still missing.

    Raises:
        TimeoutError: names `what`, the limit and the last answer.
    """
    deadline = time.monotonic() + timeout_seconds
    while (reason := missing()) is not None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_seconds:g} s for {what}: {reason}")
        time.sleep(INTERVAL_SECONDS)

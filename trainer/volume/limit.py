"""Waits, for a limited time, for an operation on a volume that may never answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic
from typing import TypeVar

_T = TypeVar("_T")
_POLL_SECONDS = 0.05


class Interrupted(Exception):  # noqa: N818 - nothing is wrong
    """Ends a wait because the caller has something more urgent to do."""


def within(seconds: float, act: Callable[[], _T], interrupts: Callable[[], bool]) -> _T:
    """Run `act` in a thread of its own, and return its result.

    A system call on an unreachable file server cannot be ended. Then the thread stays behind, and
    ends with the process at the latest.

    Args:
        seconds: The longest wait.
        act: The operation on the volume.
        interrupts: Is called several times per second. If it returns True, the wait ends.

    Raises:
        TimeoutError: The operation took longer than `seconds`.
        Interrupted: `interrupts` returned True.
        Exception: The error that `act` raised.
    """
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(act())
        except BaseException as error:  # The waiting thread raises it.
            future.set_exception(error)

    threading.Thread(target=run, name="volume", daemon=True).start()
    deadline = monotonic() + seconds
    while True:
        try:
            return future.result(_POLL_SECONDS)
        except TimeoutError:
            if future.done():  # The act has ended just now, or has itself raised a TimeoutError.
                return future.result()
        if interrupts():
            raise Interrupted
        if monotonic() > deadline:
            raise TimeoutError

"""Waits for an act on a volume that may never answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic
from typing import TypeVar

_T = TypeVar("_T")
_POLL_SECONDS = 0.05


class Interrupted(Exception):  # noqa: N818 - nothing is wrong
    """Raised where the caller has something more urgent to do."""


def within(seconds: float, act: Callable[[], _T], interrupts: Callable[[], bool]) -> _T:
    """The result of `act`, which runs in a thread of its own.

    A system call on a file server that is away cannot be ended: the thread then stays behind, and
    ends with the process at the latest.

    Args:
        seconds: longest wait.
        act: what is done.
        interrupts: asked several times a second whether the wait is to end.

    Raises:
        TimeoutError: it took longer.
        Interrupted: `interrupts` has said so.
        Exception: what `act` raises.
    """
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(act())
        except BaseException as error:  # it is raised where the result is waited for
            future.set_exception(error)

    threading.Thread(target=run, name="volume", daemon=True).start()
    deadline = monotonic() + seconds
    while True:
        try:
            return future.result(_POLL_SECONDS)
        except TimeoutError:
            if future.done():
                raise  # of the act itself
        if interrupts():
            raise Interrupted
        if monotonic() > deadline:
            raise TimeoutError

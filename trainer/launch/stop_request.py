"""Turns SIGTERM and SIGINT into a flag that the entrypoint and the training loop read."""

from __future__ import annotations

import os
import signal
import time
from types import FrameType

from trainer.launch.exit_codes import ExitCode

_POLL_SECONDS = 0.2


# If torchrun has started the ranks, Ctrl-C reaches both the ranks and torchrun, which passes it on
# to the ranks. Two signals within this time are one request.
_SAME_REQUEST_SECONDS = 2.0


class StopRequest:
    """A request to stop: the first SIGTERM or SIGINT after `install`.

    A further signal, more than `_SAME_REQUEST_SECONDS` later, ends the process at once.
    """

    def __init__(self) -> None:
        self.requested = False  # no Event, whose lock may be held when the handler runs
        self._since = 0.0

    def install(self) -> None:
        """Install the handler of both signals. Call this in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def wait(self, seconds: float) -> None:
        """Sleep for `seconds`, or until shortly after a signal has come."""
        deadline = time.monotonic() + seconds
        while not self.requested and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, _POLL_SECONDS))

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.requested and now - self._since > _SAME_REQUEST_SECONDS:
            os._exit(ExitCode.PREEMPTED)
        if not self.requested:
            self.requested, self._since = True, now

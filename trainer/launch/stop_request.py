"""Turns SIGTERM and SIGINT into a flag that the training loop asks."""

from __future__ import annotations

import os
import signal
import time
from types import FrameType

from trainer.launch.exit_codes import ExitCode

_POLL_SECONDS = 0.2


# Where ranks are started by torchrun, Ctrl-C reaches them and torchrun, which sends it on: that is
# one request, not two.
_SAME_REQUEST_SECONDS = 2.0


class StopRequest:
    """Set by the first SIGTERM or SIGINT after `install`; one more, later, ends the process."""

    def __init__(self) -> None:
        self.requested = False  # not an Event: its lock could be held when the handler runs
        self._since = 0.0

    def install(self) -> None:
        """Take over both signals. Call it in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def wait(self, seconds: float) -> None:
        """Sleep, but not much longer than until a signal comes."""
        deadline = time.monotonic() + seconds
        while not self.requested and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, _POLL_SECONDS))

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.requested and now - self._since > _SAME_REQUEST_SECONDS:
            os._exit(ExitCode.PREEMPTED)
        if not self.requested:
            self.requested, self._since = True, now

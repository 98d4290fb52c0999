"""SIGTERM and SIGINT as a flag."""

from __future__ import annotations

import os
import signal
import time
from types import FrameType

from trainer.exit_codes import ExitCode

_POLL_SECONDS = 0.2


class StopRequest:
    """Set by the first SIGTERM or SIGINT after `install`; the second one ends the process."""

    def __init__(self) -> None:
        self.requested = False  # not an Event: its lock could be held when the handler runs

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
        if self.requested:
            os._exit(ExitCode.PREEMPTED)
        self.requested = True

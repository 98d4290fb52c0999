"""Lets the first process of a container end when it is asked to while it still starts.

The kernel drops a SIGTERM for process 1 that has no handler for it. A pod that is evicted or
stopped in the second in which Python imports the trainer would miss it, train on, and be killed
without a save at the end of its grace period, minutes later.
"""

import os
import signal
from types import FrameType

from trainer.launch.exit_codes import ExitCode


def end_when_asked() -> None:
    """End process 1 at a SIGTERM, until trainer/launch/stop_request.py installs its handler."""
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, _end)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(ExitCode.PREEMPTED)

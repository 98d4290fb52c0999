"""Lets the first process of a container obey SIGTERM while it still starts.

The kernel drops a SIGTERM for process 1 if that process has no handler. A pod that is evicted or
stopped in the second in which Python imports the trainer would miss the signal and train on. At the
end of its grace period, minutes later, it would be killed without a save.
"""

import os
import signal
from types import FrameType

from trainer.launch.exit_codes import ExitCode


def end_when_asked() -> None:
    """Install a handler that ends this process at a SIGTERM, if it is process 1.

    trainer/launch/stop_request.py replaces the handler later.
    """
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, _end)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(ExitCode.PREEMPTED)

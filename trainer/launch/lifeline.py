"""Ends a process when the entrypoint that started it has ended.

The entrypoint starts its ranks, and the process that copies checkpoints to the mirror, with the
read end of a pipe as standard input. When the entrypoint closes the write end, or dies in any way,
the process reads the end of the file. A byte in the pipe asks the process to finish its work; ranks
never get one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from trainer.launch.exit_codes import ExitCode

LIFELINE_VARIABLE = "DISTTRAIN_LIFELINE"
_STDIN = 0


def started_by_entrypoint() -> bool:
    """Whether an entrypoint has started this process, and nobody by hand."""
    return os.environ.get(LIFELINE_VARIABLE) == "stdin"


def follow_entrypoint(finish: Callable[[], None] = lambda: None) -> None:
    """End this process as soon as the entrypoint that started it has ended.

    `finish` is called in another thread when the entrypoint asks this process to finish.
    """
    threading.Thread(target=_wait_for_end_of_file, args=(finish,), daemon=True).start()


def _wait_for_end_of_file(finish: Callable[[], None]) -> None:
    while os.read(_STDIN, 1):
        finish()
    os._exit(ExitCode.RETRYABLE)

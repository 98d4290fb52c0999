"""Ranks never outlive the entrypoint that started them.

The entrypoint gives torchrun a pipe as standard input, which the ranks inherit, and writes nothing
to it. When the entrypoint closes its end, or dies in whatever way, reading meets the end of file.
"""

from __future__ import annotations

import os
import threading

from trainer.exit_codes import ExitCode

LIFELINE_VARIABLE = "DISTTRAIN_LIFELINE"
_STDIN = 0


def started_by_entrypoint() -> bool:
    """Whether this process is a rank of an entrypoint, and not started by hand."""
    return os.environ.get(LIFELINE_VARIABLE) == "stdin"


def follow_entrypoint() -> None:
    """End this process as soon as the entrypoint that started it is gone."""
    threading.Thread(target=_wait_for_end_of_file, daemon=True).start()


def _wait_for_end_of_file() -> None:
    while os.read(_STDIN, 1):
        pass
    os._exit(ExitCode.RETRYABLE)

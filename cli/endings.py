"""Lets a command end in order, whatever ends it: Ctrl-C, SIGTERM, a closed terminal or pipe."""

import os
import signal
import sys
from types import FrameType

BROKEN_PIPE = 141  # exit status, 128 + SIGPIPE, as of a shell's command


def end_in_order() -> None:
    """Turn signals into SystemExit, so that `finally` runs; a second signal ends at once."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _end)


def close_output() -> None:
    """Give standard output up after a broken pipe.

    Otherwise Python's own flush at the end would complain of the pipe once more.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    sys.exit(128 + number)

"""Lets a command clean up after itself if Ctrl-C, SIGTERM or a closed terminal or pipe ends it."""

import os
import signal
import sys
from types import FrameType

REFUSED = 2  # the exit status after an error that is printed; argparse uses the same one
BROKEN_PIPE = 141  # the exit status that a shell reports for SIGPIPE: 128 + 13


def end_in_order() -> None:
    """Turn signals into SystemExit, so that `finally` blocks run.

    A second signal of the same number ends the program at once.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _end)


def close_output() -> None:
    """Replace standard output by /dev/null after a broken pipe.

    Otherwise Python's own flush at its exit would print another error about the pipe.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    sys.exit(128 + number)

"""Settings of runs that do not end by themselves, and functions that kill them."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from tests.trainer.forked import Forked
from tests.trainer.process_tree import processes_below

# Such a run does not end before its test, however busy the machine is.
ENDLESS = {"train__max_steps": 100_000, "train__decay_steps": 200, "checkpoint__interval": 10}


def kill_entrypoint(process: Forked) -> None:
    process.kill()


def kill_tree(process: Forked) -> None:
    """Kill an entrypoint and all processes below it, as happens when the pod ends."""
    for pid in processes_below(process.pid):
        with suppress(ProcessLookupError):  # a rank ends by itself with its entrypoint
            os.kill(pid, signal.SIGKILL)

"""Runs that do not end by themselves, and ways to end them."""

from __future__ import annotations

import os
import signal

from tests.trainer.forked import Forked
from tests.trainer.process_tree import processes_below

# Does not end before the test has done what it wants to, however busy the machine is.
ENDLESS = {"train__max_steps": 100_000, "train__decay_steps": 200, "checkpoint__interval": 10}


def kill_entrypoint(process: Forked) -> None:
    process.kill()


def kill_tree(process: Forked) -> None:
    """What the end of a pod is."""
    for pid in processes_below(process.pid):
        os.kill(pid, signal.SIGKILL)

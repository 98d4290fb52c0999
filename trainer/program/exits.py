"""Interprets the exit codes of a program's processes.

This module does no input or output.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

from trainer.launch.exit_codes import ExitCode
from trainer.launch.local_ranks import killed_by
from trainer.launch.status_files import ExitReport


def report_of(exit_codes: Sequence[int], names: Sequence[str], *, was_asked: bool) -> ExitReport:
    """Decide how a node's round ended.

    If the processes ended in different ways, FATAL decides before RETRYABLE, and RETRYABLE before
    PREEMPTED.

    Args:
        exit_codes: The exit codes of the node's processes; negative if a signal has ended one.
        names: The names of the processes for people, such as `rank 3`.
        was_asked: Whether the processes were asked to end. After that, exit code 0 does not mean
            that the program has finished: many programs save and then end with it.
    """
    meanings = [
        _meaning(code, name, was_asked) for code, name in zip(exit_codes, names, strict=True)
    ]
    for wanted in (ExitCode.FATAL, ExitCode.RETRYABLE, ExitCode.PREEMPTED):
        for meaning in meanings:
            if meaning.code == wanted:
                return meaning
    return ExitReport(ExitCode.DONE, "the program has ended with exit code 0")


def _meaning(code: int, name: str, was_asked: bool) -> ExitReport:
    if code == 0:
        if was_asked:
            return ExitReport(ExitCode.PREEMPTED, f"{name} has ended after it was asked to")
        return ExitReport(ExitCode.DONE, f"{name} has ended with exit code 0")
    if code in (ExitCode.PREEMPTED, -signal.SIGTERM):
        is_stop = was_asked or code == ExitCode.PREEMPTED
        kind = ExitCode.PREEMPTED if is_stop else ExitCode.RETRYABLE
        return ExitReport(kind, f"{name} was ended by SIGTERM")
    if code == ExitCode.FATAL:
        reason = f"{name} ended with exit code {code}: by that the program says that no retry helps"
        return ExitReport(ExitCode.FATAL, reason)
    if code < 0:
        return ExitReport(ExitCode.RETRYABLE, f"{name} {killed_by(-code)}")
    return ExitReport(ExitCode.RETRYABLE, f"{name} ended with exit code {code}")

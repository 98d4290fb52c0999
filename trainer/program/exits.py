"""Interprets the exit codes of a program's processes.

This module does no input or output.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

from trainer.launch.exit_codes import ExitCode
from trainer.launch.local_ranks import killed_by
from trainer.launch.status_files import ExitReport


def report_of(
    exit_codes: Sequence[int], names: Sequence[str], were_asked: Sequence[bool]
) -> ExitReport:
    """Decide how a node's round ended.

    If the processes ended in different ways, FATAL decides before RETRYABLE, and RETRYABLE before
    PREEMPTED.

    Args:
        exit_codes: The exit codes of the node's processes; negative if a signal has ended one.
        names: The names of the processes for people, such as `rank 3`.
        were_asked: Whether each process was asked to end while it ran. After that, exit code 0 does
            not mean that the program has finished: many programs save and then end with it. And
            another code is no failure: torchrun then ends with 1.
    """
    meanings = [
        _meaning(code, name, was_asked)
        for code, name, was_asked in zip(exit_codes, names, were_asked, strict=True)
    ]
    for wanted in (ExitCode.FATAL, ExitCode.RETRYABLE, ExitCode.PREEMPTED):
        for meaning in meanings:
            if meaning.code == wanted:
                return meaning
    return ExitReport(ExitCode.DONE, "the program has ended with exit code 0")


def is_failure(code: int | None, *, was_asked: bool) -> bool:
    """Whether a process has ended, but neither finished nor on request; None: it still runs."""
    if code is None:
        return False
    wanted = (ExitCode.DONE, ExitCode.PREEMPTED)
    return _meaning(code, "", was_asked).code not in wanted


def _meaning(code: int, name: str, was_asked: bool) -> ExitReport:
    if code == 0 and not was_asked:
        return ExitReport(ExitCode.DONE, f"{name} has ended with exit code 0")
    if code == ExitCode.FATAL:
        reason = f"{name} ended with exit code {code}: by that the program says that no retry helps"
        return ExitReport(ExitCode.FATAL, reason)
    if code in (ExitCode.PREEMPTED, -signal.SIGTERM):
        is_stop = was_asked or code == ExitCode.PREEMPTED
        kind = ExitCode.PREEMPTED if is_stop else ExitCode.RETRYABLE
        return ExitReport(kind, f"{name} was ended by SIGTERM")
    if code < 0:
        return ExitReport(ExitCode.RETRYABLE, f"{name} {killed_by(-code)}")
    if was_asked:
        how = "" if code == 0 else f" with exit code {code}"
        return ExitReport(ExitCode.PREEMPTED, f"{name} has ended{how} after it was asked to")
    return ExitReport(ExitCode.RETRYABLE, f"{name} ended with exit code {code}")

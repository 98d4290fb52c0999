"""Divides the time between two reports of steps by what it was spent on.

This module does no input or output.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer.events.event import Event
from trainer.events.span import Kind
from trainer.events.timeline import MICRO

HANG_STEPS = 5
"""A step is a hang if it takes longer than so many median steps."""
LEAST_HANG_SECONDS = 1.0
"""A step is a hang only if it also takes longer than this, because short steps vary."""


@dataclass(frozen=True)
class Usual:
    """What is usual in this run, in microseconds; None if no steps were reported.

    Args:
        step: The median, over the reports, of the time for a step without waits.
        report: The median of the time between two reports.
    """

    step: float | None
    report: float | None

    def is_hang(self, microseconds: float) -> bool:
        """Whether a step that takes so many microseconds is a hang."""
        if self.step is None:
            return False
        return microseconds > max(HANG_STEPS * self.step, LEAST_HANG_SECONDS * MICRO)


def reported(length: int, report: Event, usual: Usual) -> list[tuple[Kind, int]]:
    """Divide the time before a report into its kinds, in microseconds.

    Args:
        length: The time between the report and the event before it, in microseconds.
        report: The event of the report.
        usual: What is usual in the run.
    """
    data = _most(report.number("data_seconds"), length)
    save = _most(report.number("save_seconds"), length - data)
    longest, hang = report.number("longest_seconds") * MICRO, 0
    if usual.step is not None and usual.is_hang(longest):
        hang = max(0, min(round(longest - usual.step) - data, length - data - save))
    rest = length - data - save - hang
    return [(Kind.DATA, data), (Kind.SAVE, save), (Kind.HANG, hang), (Kind.PRODUCTIVE, rest)]


def unreported(length: int, usual: Usual) -> list[tuple[Kind, int]]:
    """Divide the time of training after which no report came into its kinds, in microseconds.

    Until a report was due, steps were likely made, so that part counts as productive. The rest is a
    hang, if it is long enough for one.

    Args:
        length: The time, in microseconds.
        usual: What is usual in the run.
    """
    if usual.report is None or not usual.is_hang(length - usual.report):
        return [(Kind.PRODUCTIVE, length)]
    productive = round(usual.report)
    return [(Kind.PRODUCTIVE, productive), (Kind.HANG, length - productive)]


def _most(seconds: float, limit: int) -> int:
    return min(round(seconds * MICRO), limit)

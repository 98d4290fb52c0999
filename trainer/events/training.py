"""What the time between two reports of steps was spent on. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.events.event import Event
from trainer.events.span import Kind
from trainer.events.timeline import MICRO

HANG_STEPS = 5
"""A step that takes longer than so many median steps is a hang,"""
LEAST_HANG_SECONDS = 1.0
"""if it takes longer than this too: short steps vary."""


@dataclass(frozen=True)
class Usual:
    """What is usual in this run, in microseconds; None where no steps were reported.

    Args:
        step: the median over the reports of the time for a step without waits.
        report: the median of the time between two reports.
    """

    step: float | None = None
    report: float | None = None

    def is_hang(self, microseconds: float) -> bool:
        """Whether a step that takes so long is one."""
        if self.step is None:
            return False
        return microseconds > max(HANG_STEPS * self.step, LEAST_HANG_SECONDS * MICRO)


def reported(length: int, report: Event, usual: Usual) -> list[tuple[Kind, int]]:
    """The parts of `length` microseconds whose steps were reported, in microseconds."""
    data = _most(report.number("data_seconds"), length)
    save = _most(report.number("save_seconds"), length - data)
    longest, hang = report.number("longest_seconds") * MICRO, 0
    if usual.step is not None and usual.is_hang(longest):
        hang = max(0, min(round(longest - usual.step) - data, length - data - save))
    rest = length - data - save - hang
    return [(Kind.DATA, data), (Kind.SAVE, save), (Kind.HANG, hang), (Kind.PRODUCTIVE, rest)]


def unreported(length: int, usual: Usual) -> list[tuple[Kind, int]]:
    """The same parts where no report came any more; until one was due, steps were likely made."""
    if usual.report is None or not usual.is_hang(length - usual.report):
        return [(Kind.PRODUCTIVE, length)]
    productive = round(usual.report)
    return [(Kind.PRODUCTIVE, productive), (Kind.HANG, length - productive)]


def _most(seconds: float, limit: int) -> int:
    return min(round(seconds * MICRO), limit)

"""Computes goodput as NVIDIA and Google define it, from the same sums.

This module does no input or output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainer.events.span import Kind, Phase
from trainer.events.sums import Group

# In NVIDIA's definition, the time until the container runs is rescheduling.
_RESCHEDULING = (Kind.DOWN, Kind.IMAGE, Kind.CONTAINER)
# In NVIDIA's definition, spans of a start with these kinds do not count as resuming, but as
# rescheduling, saving, or lost work.
_NOT_RESUMING = (*_RESCHEDULING, Kind.SAVE, Kind.HANG)


def nvidia_goodput(sums: Mapping[Group, int]) -> float | None:
    """Goodput as NVIDIA's Cluster Readiness Engine defines it (GoodputMeasurement, `result`).

    It is (t_w - t_ch - t_rm - t_re - t_save) / (t_w - t_re), with the whole time t_w. It is the
    share of the time without rescheduling (t_re) that was not lost since a checkpoint (t_ch), not
    spent on coming back to training (t_rm), and not on saving (t_save). Evaluations, waits for data
    and hangs that end by themselves count as good. The result is None if no time was measured.
    """
    running = _sum(sums, lambda of: of.kind not in _RESCHEDULING)
    lost = _sum(sums, lambda of: of.is_repeated and of.kind not in (Kind.SAVE, Kind.START))
    resuming = _sum(sums, lambda of: of.phase is not None and of.kind not in _NOT_RESUMING)
    saving = _sum(sums, lambda of: of.kind == Kind.SAVE)
    return (running - lost - resuming - saving) / running if running else None


def google_goodput(sums: Mapping[Group, int], usual_step: float) -> float | None:
    """Goodput as Google's ml-goodput-measurement defines it: the share of steps that were kept.

    A step that hangs counts as a long step. The first step of a start, which compiles, counts only
    for the time that a step usually takes (`usual_step`, in microseconds). The result is None if no
    time was measured.
    """
    wall = sum(sums.values())
    kept = {of: length for of, length in sums.items() if of.has_updates and not of.is_repeated}
    steps = _sum(kept, lambda of: of.phase is None and of.kind in (Kind.PRODUCTIVE, Kind.HANG))
    firsts = [length for of, length in kept.items() if of.phase == Phase.FIRST_STEP]
    return (steps + sum(min(usual_step, length) for length in firsts)) / wall if wall else None


def _sum(sums: Mapping[Group, int], belongs: Callable[[Group], bool]) -> int:
    return sum(length for group, length in sums.items() if belongs(group))

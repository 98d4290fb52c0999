"""Goodput as others define it, from the same sums. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainer.events.span import Kind, Phase
from trainer.events.sums import Group

# Until the container runs, it is rescheduling there.
_RESCHEDULING = (Kind.DOWN, Kind.IMAGE, Kind.CONTAINER)
# What a span of a start counts as there, if not as resuming: rescheduling, saving, or lost work.
_NOT_RESUMING = (*_RESCHEDULING, Kind.SAVE, Kind.HANG)


def nvidia_goodput(sums: Mapping[Group, int]) -> float | None:
    """Goodput as NVIDIA's Cluster Readiness Engine defines it (GoodputMeasurement, `result`).

    (t_w - t_ch - t_rm - t_re - t_save) / (t_w - t_re): of the time without rescheduling (t_re),
    what is not lost since a checkpoint (t_ch), not spent on coming back to training (t_rm), and not
    on saving. Evaluations, waits for data and hangs that end by themselves are good there. None
    where no time is measured.
    """
    running = _sum(sums, lambda of: of.kind not in _RESCHEDULING)
    lost = _sum(sums, lambda of: of.is_repeated and of.kind not in (Kind.SAVE, Kind.START))
    resuming = _sum(sums, lambda of: of.phase is not None and of.kind not in _NOT_RESUMING)
    saving = _sum(sums, lambda of: of.kind == Kind.SAVE)
    return (running - lost - resuming - saving) / running if running else None


def google_goodput(sums: Mapping[Group, int], usual_step: float) -> float | None:
    """Goodput as Google's ml-goodput-measurement defines it: time of steps that were kept.

    A step that hangs is a long step there, and of a start's first step, which compiles, as much
    counts as a step usually takes (`usual_step`, in microseconds). None where no time is measured.
    """
    wall = sum(sums.values())
    kept = {of: length for of, length in sums.items() if of.has_updates and not of.is_repeated}
    steps = _sum(kept, lambda of: of.phase is None and of.kind in (Kind.PRODUCTIVE, Kind.HANG))
    firsts = [length for of, length in kept.items() if of.phase == Phase.FIRST_STEP]
    return (steps + sum(min(usual_step, length) for length in firsts)) / wall if wall else None


def _sum(sums: Mapping[Group, int], belongs: Callable[[Group], bool]) -> int:
    return sum(length for group, length in sums.items() if belongs(group))

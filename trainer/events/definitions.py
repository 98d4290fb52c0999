"""Goodput as others define it, from the same spans. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from trainer.events.span import Kind, Phase, Span

# Until the container runs, it is rescheduling there.
_RESCHEDULING = (Kind.DOWN, Kind.IMAGE, Kind.CONTAINER)
# What a span of a start counts as there, if not as resuming: rescheduling, saving, or lost work.
_NOT_RESUMING = (*_RESCHEDULING, Kind.SAVE, Kind.HANG)


def nvidia_goodput(spans: Sequence[Span]) -> float | None:
    """Goodput as NVIDIA's Cluster Readiness Engine defines it (GoodputMeasurement, `result`).

    (t_w - t_ch - t_rm - t_re - t_save) / (t_w - t_re): of the time without rescheduling (t_re),
    what is not lost since a checkpoint (t_ch), not spent on coming back to training (t_rm), and not
    on saving. Evaluations, waits for data and hangs that end by themselves are good there. None
    where no time is measured.
    """
    running = _length(span for span in spans if span.kind not in _RESCHEDULING)
    lost = _length(s for s in spans if s.is_repeated and s.kind not in (Kind.SAVE, Kind.START))
    resuming = _length(s for s in spans if s.phase is not None and s.kind not in _NOT_RESUMING)
    saving = _length(span for span in spans if span.kind == Kind.SAVE)
    return (running - lost - resuming - saving) / running if running else None


def google_goodput(spans: Sequence[Span]) -> float | None:
    """Goodput as Google's ml-goodput-measurement defines it: time of steps that were kept.

    A step that hangs is a long step there, and of a start's first step, which compiles, as much
    counts as a step usually takes. None where no time is measured.
    """
    wall = _length(spans)
    kept = [span for span in spans if span.last > span.first and not span.is_repeated]
    steps = [span for span in kept if span.phase is None and span.kind == Kind.PRODUCTIVE]
    hangs = [span for span in kept if span.phase is None and span.kind == Kind.HANG]
    usual = statistics.median([s.length / (s.last - s.first) for s in steps]) if steps else 0.0
    firsts = [span for span in kept if span.phase == Phase.FIRST_STEP]
    first_steps = sum(min(usual, span.length) for span in firsts)
    return (_length(steps) + _length(hangs) + first_steps) / wall if wall else None


def _length(spans: Iterable[Span]) -> int:
    return sum(span.length for span in spans)

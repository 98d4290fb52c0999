"""How much of a run's time went where, and what it cost. Pure.

docs/goodput.md defines every number here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.events.definitions import google_goodput, nvidia_goodput
from trainer.events.event import Event
from trainer.events.history import History, read_history
from trainer.events.span import Kind, Phase
from trainer.events.timeline import MICRO


@dataclass(frozen=True)
class StartTimes:
    """How long one start of the training took, from the end of training to its first step.

    Args:
        step: updates made before it.
        reason: why training had ended; empty for the first start.
        has_stepped: false where it has not come to its first step (yet).
        phases: seconds by phase.
    """

    step: int
    reason: str
    has_stepped: bool
    phases: dict[Phase, float]

    @property
    def seconds(self) -> float:
        """Seconds of all phases."""
        return sum(self.phases.values())


@dataclass(frozen=True)
class Account:
    """The account of a run up to its end, or to its last sign of life.

    Args:
        seconds: by kind; their sum is `wall_seconds`.
        gpu_seconds: the same, each with the GPUs of that time.
        lost_steps: how many updates were made again.
        unsaved_seconds: productive time after the newest checkpoint; a kill now would lose it.
        starts: the first start, then one for each interruption.
        nvidia, google: goodput as those two define it; None where nothing was measured.
    """

    is_finished: bool
    begin_unix_seconds: float
    wall_seconds: float
    seconds: dict[Kind, float]
    gpu_seconds: dict[Kind, float]
    gpus: int
    step: int
    saved_step: int
    tokens: int
    lost_steps: int
    unsaved_seconds: float
    starts: tuple[StartTimes, ...]
    nvidia: float | None
    google: float | None
    damaged_lines: int

    @property
    def goodput(self) -> float:
        """Share of the time that was productive; 0 where nothing was measured."""
        return self.seconds[Kind.PRODUCTIVE] / self.wall_seconds if self.wall_seconds else 0.0


def account_of(events: Sequence[Event], damaged_lines: int = 0) -> Account:
    """The account from the events of node 0, in the order of the file."""
    history = read_history(events, damaged_lines)
    spans = history.spans
    wall = spans[-1].end if spans else 0
    lengths, gpu_lengths = dict.fromkeys(Kind, 0), dict.fromkeys(Kind, 0)
    for span in spans:
        lengths[span.counts_as] += span.length
        gpu_lengths[span.counts_as] += span.length * span.gpus
    return Account(
        is_finished=history.is_finished,
        begin_unix_seconds=history.begin_unix_seconds,
        wall_seconds=wall / MICRO,
        seconds={kind: length / MICRO for kind, length in lengths.items()},
        gpu_seconds={kind: length / MICRO for kind, length in gpu_lengths.items()},
        gpus=spans[-1].gpus if spans else 0,
        step=history.step,
        saved_step=history.saved_step,
        tokens=history.step * history.tokens_per_step,
        lost_steps=history.lost_steps,
        unsaved_seconds=_unsaved(history) / MICRO,
        starts=_starts(history),
        nvidia=nvidia_goodput(spans),
        google=google_goodput(spans),
        damaged_lines=damaged_lines,
    )


def _unsaved(history: History) -> int:
    """Microseconds of steps that count now and would be repeated after the newest checkpoint."""
    found = 0
    for span in history.spans:
        if span.kind == Kind.PRODUCTIVE and not span.is_repeated:
            parts = span.repeated_after(history.saved_step)
            found += sum(part.length for part in parts if part.is_repeated)
    return found


def _starts(history: History) -> tuple[StartTimes, ...]:
    phases = [dict.fromkeys(Phase, 0) for _ in history.starts]
    for span in history.spans:
        if span.phase is not None:
            phases[span.start - 1][span.phase] += span.length
    return tuple(
        StartTimes(
            start.step,
            start.reason,
            start.has_stepped,
            {phase: length / MICRO for phase, length in lengths.items()},
        )
        for start, lengths in zip(history.starts, phases, strict=True)
    )

"""Makes the account of a run: what its time was spent on.

docs/goodput.md defines every number here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from trainer.events.definitions import google_goodput, nvidia_goodput
from trainer.events.event import Event, Events
from trainer.events.history import read_history
from trainer.events.outlook import Outlook
from trainer.events.span import Kind, Phase
from trainer.events.sums import Sums
from trainer.events.timeline import MICRO


@dataclass(frozen=True)
class StartTimes:
    """How long one start of the training took, from the end of training to its first step.

    Args:
        step: The number of updates made before it.
        reason: Why training had ended; empty for the first start.
        has_stepped: Whether it has come to its first step.
        phases: The seconds of each phase.
    """

    step: int
    reason: str
    has_stepped: bool
    phases: dict[Phase, float]

    @property
    def seconds(self) -> float:
        """The seconds of all phases."""
        return sum(self.phases.values())


@dataclass(frozen=True)
class Account:
    """The account of a run up to its end, or to its last sign of life.

    Args:
        seconds: The seconds of each kind; their sum is `wall_seconds`.
        gpu_seconds: The seconds of each kind, times the number of GPUs at that time.
        lost_steps: How many updates were made again.
        unsaved_seconds: The productive time after the newest checkpoint; a kill now would lose it.
        starts: The first start, then one for each interruption.
        paused_seconds: The time that is not counted: after the run was finished, and before it
            was continued.
        nvidia, google: Goodput as NVIDIA and Google define it; None if nothing was measured.
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
    paused_seconds: float
    nvidia: float | None
    google: float | None
    damaged_lines: int

    @property
    def goodput(self) -> float:
        """The share of the time that was productive; 0 if nothing was measured."""
        return self.seconds[Kind.PRODUCTIVE] / self.wall_seconds if self.wall_seconds else 0.0


def account_of(events: Iterable[Event], damaged_lines: int = 0) -> Account:
    """Make the account from the events of node 0, in the order of the file.

    The events are iterated twice and not kept. So the memory that this needs grows with the number
    of starts, and not with the number of reports.
    """
    outlook = Outlook.of(events)
    sums = Sums(outlook.saved_step)
    history = read_history(events, outlook, sums.add)
    lengths, gpu_lengths = Counter[Kind](), Counter[Kind]()
    phases = Counter[tuple[int, Phase | None]]()
    for group, length in sums.lengths.items():
        lengths[group.counts_as] += length
        gpu_lengths[group.counts_as] += length * group.gpus
        phases[group.start, group.phase] += length
    return Account(
        is_finished=history.is_finished,
        begin_unix_seconds=history.begin_unix_seconds,
        wall_seconds=sums.wall / MICRO,
        seconds={kind: lengths[kind] / MICRO for kind in Kind},
        gpu_seconds={kind: gpu_lengths[kind] / MICRO for kind in Kind},
        gpus=sums.gpus,
        step=history.step,
        saved_step=history.saved_step,
        tokens=history.step * history.tokens_per_step,
        lost_steps=history.lost_steps,
        unsaved_seconds=sums.unsaved / MICRO,
        starts=tuple(
            StartTimes(
                start.step,
                start.reason,
                start.has_stepped,
                {phase: phases[number, phase] / MICRO for phase in Phase},
            )
            for number, start in enumerate(history.starts, 1)
        ),
        paused_seconds=history.paused / MICRO,
        nvidia=nvidia_goodput(sums.lengths),
        google=google_goodput(sums.lengths, sums.usual_step.value() or 0.0),
        damaged_lines=damaged_lines,
    )


def account_of_file(events: Events) -> Account:
    """Make the account from the event file of node 0, with the number of its damaged lines."""
    account = account_of(events)
    return replace(account, damaged_lines=events.damaged_lines)

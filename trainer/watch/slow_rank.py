"""Measures this rank's steps, exchanges them with the other ranks, and names the slow one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from trainer.events.event import Name
from trainer.events.log import EventLog
from trainer.parallel.world import World
from trainer.watch.counters import CpuCounters, CpuWaits
from trainer.watch.laps import Part, laps_on
from trainer.watch.pace import Pace
from trainer.watch.slow import NUMBERS, Window

WINDOW_STEPS = 5


class SlowRankWatch:
    """Measures the steps of the training loop, and exchanges the result every WINDOW_STEPS steps.

    The loop adds the numbers up over the ranks in a collective that it needs anyway.
    """

    def __init__(
        self,
        world: World,
        device: torch.device,
        own_save_seconds: Callable[[], float],
        events: EventLog,
        say: Callable[[str], None],
    ):
        """`own_save_seconds` returns how long training has waited for this rank's saves so far."""
        self._world, self._own_save_seconds = world, own_save_seconds
        self._events, self._say = events, say
        self._laps, self._pace, self._counters = laps_on(device), Pace(), CpuCounters()
        self._steps, self._waits, self._saved = 0, CpuWaits(), 0.0
        self.begin_step = self._laps.begin_step
        self.lap: Callable[[Part], None] = self._laps.lap

    @property
    def note(self) -> str:
        """Which rank is slow, for the end of a line about a step; empty if none is."""
        finding = self._pace.finding
        return f" slow rank: {finding}" if finding is not None else ""

    @property
    def for_record(self) -> dict[str, int | float | str | None]:
        """Which rank is slow, for a record of the metrics."""
        finding = self._pace.finding
        return {
            "slow_rank": finding and finding.rank,
            "slow_cause": finding and str(finding.cause),
            "slow_factor": finding and round(finding.factor, 2),
        }

    def to_exchange(self) -> list[float]:
        """Return the numbers to add up over all ranks; often none. Call this after every update.

        The list has a place for the numbers of each rank. Every rank fills its own place, and has
        zeros in the places of the others.
        """
        is_due = self._steps and self._steps % WINDOW_STEPS == 0
        if not is_due:
            return []
        steps = self._laps.cut()
        if not steps:  # the steps of a GPU come with the next call
            return [0.0] * (self._world.size * NUMBERS)
        data, compute, wait, _ = (
            sorted(parts)[len(parts) // 2] for parts in zip(*steps, strict=True)
        )
        waits, saved = self._counters.read(), self._own_save_seconds()
        cpu = waits.since(self._waits)
        save, self._waits, self._saved = saved - self._saved, waits, saved
        mine = Window(
            self._world.node,
            data,
            compute,
            wait,
            save,
            throttled=cpu.throttled / WINDOW_STEPS,
            delayed=cpu.delayed / WINDOW_STEPS,
            pressed=cpu.pressed / WINDOW_STEPS,
        ).to_numbers()
        before = [0.0] * (self._world.rank * NUMBERS)
        return before + mine + [0.0] * ((self._world.size - self._world.rank - 1) * NUMBERS)

    def step_done(self, sums: Sequence[float]) -> None:
        """Note that the step has ended, and take the sums of the numbers of all ranks.

        `sums`: the numbers of `to_exchange`, added up over all ranks.
        """
        if self._world.size == 1:
            return  # no other rank exchanges numbers with this one, so it keeps no steps
        self._laps.end_step(Part.WAIT)
        self._steps += 1
        if self._steps == 1:  # the first step of a start compiles, and is not measured
            self._laps.cut()
            self._waits, self._saved = self._counters.read(), self._own_save_seconds()
        if self._world.is_main and any(sums):
            places = range(0, len(sums), NUMBERS)
            self._take([Window.from_numbers(sums[at : at + NUMBERS]) for at in places])

    def _take(self, windows: Sequence[Window]) -> None:
        before = self._pace.finding
        if not self._pace.take(WINDOW_STEPS, windows):
            return
        finding = self._pace.finding
        if finding is None:
            assert before is not None
            self._say(f"no slow rank any more: {before.who} was the last one ({before.cause})")
            self._events.write(Name.NO_SLOW_RANK)
            return
        self._say(f"slow rank: {finding}")
        self._events.write(
            Name.SLOW_RANK,
            rank=finding.rank,
            node=finding.node,
            cause=str(finding.cause),
            factor=round(finding.factor, 2),
            seconds=round(finding.seconds, 4),
            others_seconds=round(finding.others_seconds, 4),
        )

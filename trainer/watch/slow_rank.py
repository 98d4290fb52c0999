"""Measures this rank's steps, exchanges them with the other ranks, and names the slow one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from trainer.events.event import Name
from trainer.events.log import EventLog
from trainer.parallel.world import World
from trainer.watch.counters import CpuWaits, cpu_waits
from trainer.watch.laps import Laps, Part
from trainer.watch.pace import Pace, Window

WINDOW_STEPS = 5


class SlowRankWatch:
    """Stamps the steps of the training loop; all ranks exchange them every WINDOW_STEPS steps."""

    def __init__(
        self,
        world: World,
        device: torch.device,
        own_save_seconds: Callable[[], float],
        events: EventLog,
        say: Callable[[str], None],
    ):
        """`own_save_seconds`: how long, so far, training has waited for this rank's writing."""
        self._world, self._own_save_seconds = world, own_save_seconds
        self._events, self._say = events, say
        self._laps, self._pace = Laps(device), Pace()
        self._is_on, self._is_late = world.size > 1, device.type == "cuda"
        self._earlier: tuple[list[Any], CpuWaits, float] | None = None
        self._steps, self._waits, self._saved = 0, CpuWaits(0.0, 0.0), 0.0

    @property
    def note(self) -> str:
        """For the end of a line about a step: who is slow; empty where nobody is."""
        finding = self._pace.finding
        return f" slow rank: {finding}" if finding is not None else ""

    def begin_step(self) -> None:
        """Nothing is waited for any more, and the next step begins."""
        if self._is_on:
            self._laps.begin_step()

    def lap(self, part: Part) -> None:
        """The time since the last stamp was spent on `part`."""
        if self._is_on:
            self._laps.lap(part)

    def step_done(self, is_first: bool) -> None:
        """Call it at the end of every step, on all ranks alike.

        `is_first`: of this start; it compiles, and is not measured.
        """
        self._laps.end_step()
        if is_first:
            self._laps.cut()
            self._steps, self._waits, self._saved = 0, cpu_waits(), self._own_save_seconds()
            return
        self._steps += 1
        if not self._is_on or self._steps % WINDOW_STEPS:
            return
        waits, saved = cpu_waits(), self._own_save_seconds()
        window = (self._laps.cut(), waits.since(self._waits), saved - self._saved)
        self._waits, self._saved = waits, saved
        # A GPU may be steps behind: then the window before this one is exchanged.
        ready = self._earlier if self._is_late else window
        self._earlier = window
        if ready is not None:
            self._exchange(*ready)

    def _exchange(self, steps: list[Any], waits: CpuWaits, saved: float) -> None:
        data, compute, wait, _ = self._laps.medians(steps)
        delayed, throttled = waits.delayed / WINDOW_STEPS, waits.throttled / WINDOW_STEPS
        mine = Window(self._world.node, data, compute, wait, saved, throttled, delayed)
        windows = [
            Window.from_numbers(numbers) for numbers in self._world.gather(mine.to_numbers())
        ]
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

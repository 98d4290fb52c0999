"""The parts of a rank's steps, as they are measured on a GPU."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from trainer.events.log import EventLog
from trainer.parallel.world import World
from trainer.watch.laps import Part, laps_on
from trainer.watch.slow_rank import SlowRankWatch


@dataclass
class TimeLine:
    """A stand-in for a GPU's stream, which is at a point of time of its own."""

    seconds: float = 0.0
    waits: int = 0

    def event(self, *, enable_timing: bool) -> Event:
        assert enable_timing
        return Event(self)


@dataclass
class Event:
    """A stand-in for an event of that stream."""

    line: TimeLine
    at: float = -1.0

    def record(self, stream: TimeLine) -> None:
        assert stream is self.line
        self.at = stream.seconds

    def synchronize(self) -> None:
        self.line.waits += 1

    def elapsed_time(self, later: Event) -> float:
        assert 0 <= self.at <= later.at
        return 1000 * (later.at - self.at)


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> TimeLine:
    made = TimeLine()
    monkeypatch.setattr(torch.cuda, "Event", made.event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: made)
    return made


def step(laps: Any, line: TimeLine, compute: float) -> None:
    """Let one step pass on the stream."""
    laps.begin_step()
    for part, seconds in ((Part.DATA, 1.0), (Part.COMPUTE, compute), (Part.WAIT, 2.0)):
        line.seconds += seconds
        laps.lap(part)
    line.seconds += 4.0
    laps.end_step(Part.COMPUTE)
    line.seconds += 100.0  # between two steps
    laps.lap(Part.WAIT)


def test_gpus_steps_are_told_one_call_later(line: TimeLine) -> None:
    """The parts of a GPU's steps are measured by its own time and told one call later, so that
    nobody waits for steps that were just queued.
    """
    laps = laps_on(torch.device("cuda"))
    step(laps, line, 8.0)
    step(laps, line, 16.0)
    assert laps.cut() == []
    assert line.waits == 0
    step(laps, line, 32.0)
    first, second = laps.cut()
    assert first == pytest.approx([1.0, 12.0, 2.0, 0.0])
    assert second == pytest.approx([1.0, 20.0, 2.0, 0.0])
    (third,) = laps.cut()
    assert third == pytest.approx([1.0, 36.0, 2.0, 0.0])
    assert laps.cut() == []


def test_single_rank_keeps_no_steps() -> None:
    """A run of one rank needs no more memory from step to step. There is no other rank with which
    its steps could be compared, so none of them is kept.
    """
    cpu, events = torch.device("cpu"), EventLog(None, print)
    watch = SlowRankWatch(World(), cpu, lambda: 0.0, events, print)

    def bytes_after(steps: int) -> int:
        for _ in range(steps):
            watch.begin_step()
            for part in (Part.DATA, Part.WAIT, Part.COMPUTE):
                watch.lap(part)
            watch.step_done(watch.to_exchange())
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = bytes_after(100)
        assert bytes_after(10_000) - before < 100_000
    finally:
        tracemalloc.stop()

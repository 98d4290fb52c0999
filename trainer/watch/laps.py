"""Measures what the time of a rank's steps is spent on, and how much of it is the rank's own.

Because of the collectives, a step takes equally long on all ranks: the slow rank computes while the
other ranks wait for it. So the loop reads the clock at the begin and the end of each wait for other
ranks.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import time
from enum import IntEnum
from typing import Any, Protocol

import torch


class Part(IntEnum):
    """What a part of a step was spent on."""

    DATA = 0
    """Waiting for the batch of this step."""
    COMPUTE = 1
    """Forward and backward pass until the last gradient is there, and the update."""
    WAIT = 2
    """In a collective: until the other ranks have entered it, and for the transfer."""
    SAVE = 3
    """Copying the state for a save. Save.own_seconds measures that part too."""


class Laps(Protocol):
    """Measures the parts of steps; the time between two steps belongs to no step."""

    def begin_step(self) -> None:
        """Begin a step."""
        ...

    def lap(self, part: Part) -> None:
        """Count the time since the last call as `part`; between two steps, do nothing."""
        ...

    def end_step(self, part: Part) -> None:
        """Count the time since the last call as `part`, and end the step."""
        ...

    def cut(self) -> list[list[float]]:
        """Return the seconds of each step that has ended since the last call of `cut`.

        Each step is a list in the order of `Part`.
        """
        ...


def laps_on(device: torch.device) -> Laps:
    """Return an object that measures steps on `device`."""
    return _CudaLaps() if device.type == "cuda" else _CpuLaps()


class _CpuLaps:
    """Measures with the host's clock."""

    def __init__(self) -> None:
        self._steps: list[list[float]] = []
        self._sums, self._last = [0.0] * len(Part), 0.0

    def begin_step(self) -> None:
        self._sums = [0.0] * len(Part)
        self._last = time.perf_counter()

    def lap(self, part: Part) -> None:
        now = time.perf_counter()
        self._sums[part] += now - self._last
        self._last = now

    def end_step(self, part: Part) -> None:
        self.lap(part)
        self._steps.append(self._sums)
        self._sums = [0.0] * len(Part)  # takes the time between two steps

    def cut(self) -> list[list[float]]:
        steps, self._steps = self._steps, []
        return steps


class _CudaLaps:
    """Measures with events on the GPU, because the host may be steps ahead of the GPU.

    So `cut` returns the steps that had ended at the call before. By now the GPU has done these
    steps, or will have done them soon.
    """

    def __init__(self) -> None:
        self._earlier: list[list[tuple[Part, Any]]] = []
        self._steps: list[list[tuple[Part, Any]]] = []
        self._stamps: list[tuple[Part, Any]] | None = None

    def begin_step(self) -> None:
        self._stamps = []
        self.lap(Part.WAIT)

    def lap(self, part: Part) -> None:
        if self._stamps is not None:
            event = torch.cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream())
            self._stamps.append((part, event))

    def end_step(self, part: Part) -> None:
        self.lap(part)
        if self._stamps is not None:
            self._steps.append(self._stamps)
        self._stamps = None

    def cut(self) -> list[list[float]]:
        ready, self._earlier, self._steps = self._earlier, self._steps, []
        return [self._sums(stamps) for stamps in ready]

    def _sums(self, stamps: list[tuple[Part, Any]]) -> list[float]:
        stamps[-1][1].synchronize()
        sums = [0.0] * len(Part)
        for number in range(1, len(stamps)):
            part, event = stamps[number]
            sums[part] += stamps[number - 1][1].elapsed_time(event) / 1000
        return sums

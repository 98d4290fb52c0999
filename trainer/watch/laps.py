"""Where the time of one rank's steps goes, and which part of it the rank spends by itself.

A collective makes all ranks equally long: the slow one computes while the others wait for it. So
the loop stamps the clock at the begin and the end of each wait for other ranks.
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
    """In a collective: until the other ranks have come, and for the transfer."""
    SAVE = 3
    """A save that is being copied; Save.own_seconds counts it."""


class Laps(Protocol):
    """Measures the parts of steps; what comes between two steps belongs to none."""

    def begin_step(self) -> None:
        """A step begins."""
        ...

    def lap(self, part: Part) -> None:
        """The time since the last stamp was spent on `part`; without effect between two steps."""
        ...

    def end_step(self, part: Part) -> None:
        """The time since the last stamp was spent on `part`, and the step ends here."""
        ...

    def cut(self) -> list[list[float]]:
        """Seconds of each step that has ended since the last call, in the order of `Part`."""
        ...


def laps_on(device: torch.device) -> Laps:
    """Measures steps that are computed on that device."""
    return _CudaLaps() if device.type == "cuda" else _CpuLaps()


class _CpuLaps:
    """Measures by the host's clock."""

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
        self._sums = [0.0] * len(Part)  # for nobody

    def cut(self) -> list[list[float]]:
        steps, self._steps = self._steps, []
        return steps


class _CudaLaps:
    """On the GPU's own time line, since the host may be steps ahead of it.

    So `cut` returns the steps of the call before, which the GPU has done by now or soon will have.
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

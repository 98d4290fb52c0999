"""Where the time of one rank's steps goes, and which part of it the rank spends by itself.

A collective makes all ranks equally long: the slow one computes while the others wait for it. So
the loop stamps the clock at the begin and the end of each wait for other ranks.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

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


class Laps:
    """Stamps of the steps of this rank, on a GPU on its own time line: the host may be ahead."""

    def __init__(self, device: torch.device):
        self._is_cuda = device.type == "cuda"
        self._steps: list[list[tuple[Part, Any]]] = []
        self._is_in_step = False

    def begin_step(self) -> None:
        """A step begins; what came since the one before belongs to no step."""
        self._steps.append([(Part.WAIT, self._stamp())])
        self._is_in_step = True

    def end_step(self) -> None:
        """What comes until the next step, such as an evaluation, belongs to no step."""
        self._is_in_step = False

    def lap(self, part: Part) -> None:
        """The time since the last stamp was spent on `part`; without effect between two steps."""
        if self._is_in_step:
            self._steps[-1].append((part, self._stamp()))

    def cut(self) -> list[list[tuple[Part, Any]]]:
        """The stamps of the steps so far, to be read by `medians`; begins anew."""
        steps, self._steps = self._steps, []
        return steps

    def medians(self, steps: Sequence[Sequence[tuple[Part, Any]]]) -> list[float]:
        """Median seconds per step for each part, in the order of `Part`; waits until a GPU has
        come so far.
        """
        if self._is_cuda and steps:
            steps[-1][-1][1].synchronize()
        sums = [self._sums(step) for step in steps]
        return [statistics.median(parts) for parts in zip(*sums, strict=True)] or [0.0] * len(Part)

    def _sums(self, step: Sequence[tuple[Part, Any]]) -> list[float]:
        sums = [0.0] * len(Part)
        for number in range(1, len(step)):
            before, (part, stamp) = step[number - 1][1], step[number]
            seconds = before.elapsed_time(stamp) / 1000 if self._is_cuda else stamp - before
            sums[part] += seconds
        return sums

    def _stamp(self) -> Any:
        if not self._is_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream())
        return event

"""Measures throughput, step times and the wait for data, and estimates the remaining time."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import resource
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

_STEPS_FOR_PERCENTILES = 200
_PAUSE = 10  # a step that takes so many times as long as the usual one is a pause


@dataclass(frozen=True)
class Speed:
    """The speed of training, as this rank has measured it.

    `tokens_per_second` is the throughput of all ranks together. `mfu` is the share of the GPUs'
    peak, or None if the peak is not known. `data_seconds` is the time per step that this rank
    waited for its batches. The percentiles are of the last 200 steps of this rank, without the
    first step of the process.
    """

    tokens_per_second: float
    step_seconds: float
    mfu: float | None
    data_seconds: float
    step_seconds_p50: float
    step_seconds_p95: float
    step_seconds_longest: float
    """The longest step since `Speedometer.start`, without the first step of the process. If the
    time after the last step is longer, it is that time."""


class Speedometer:
    """Measures the time of training steps, without the time between `stop` and `start`."""

    def __init__(
        self,
        tokens_per_step: int,
        flops_per_token: int,
        peak: float | None,
        world_size: int,
        device: torch.device,
    ):
        self._tokens_per_step = tokens_per_step
        self._flops_per_token = flops_per_token
        self._peak = peak and peak * world_size
        self._clock = _CudaClock() if device.type == "cuda" else _CpuClock()
        self._step, self._begin, self._data_seconds = 0, 0.0, 0.0
        self._recent: deque[float] = deque(maxlen=_STEPS_FOR_PERCENTILES)
        self._first_step: int | None = None

    def start(self, step: int) -> None:
        """Begin to measure. `step` is the number of steps made so far."""
        self._step, self._begin, self._data_seconds = step, time.perf_counter(), 0.0
        self._clock.restart()

    @contextmanager
    def fetching(self) -> Iterator[None]:
        """Measure the code inside as the wait for a batch."""
        begin = time.perf_counter()
        yield
        self._data_seconds += time.perf_counter() - begin

    def leave_out(self, seconds: float) -> None:
        """Do not count `seconds` since the last step. The GPU must have ended its work."""
        self._begin += seconds
        self._clock.leave_out()

    def step_done(self, step: int) -> None:
        """Note the end of a step. Call this after every step."""
        self._clock.mark()
        if self._first_step is None:
            self._first_step = step

    def stop(self, step: int) -> Speed:
        """Return the mean speed since `start`. The GPU must have ended its work."""
        steps = step - self._step
        assert steps > 0
        all_seconds = time.perf_counter() - self._begin
        seconds = all_seconds / steps
        laps = self._clock.laps()
        is_first = self._first_step == self._step + 1
        longest = max([*laps[is_first:], all_seconds - sum(laps)])
        self._recent.extend(laps[1:] if is_first and len(laps) > 1 else laps)
        p50, p95 = (float(value) for value in np.percentile(self._recent, (50, 95)))
        if is_first and len(laps) == 1:
            self._recent.clear()
        tokens_per_second = self._tokens_per_step / seconds
        mfu = self._peak and tokens_per_second * self._flops_per_token / self._peak
        data_seconds = self._data_seconds / steps
        return Speed(tokens_per_second, seconds, mfu, data_seconds, p50, p95, longest)

    def seconds_left(
        self, step: int, max_steps: int, others: Iterable[tuple[int, float]]
    ) -> float | None:
        """Estimate the seconds until `max_steps`, at the speed of the last 200 steps.

        A step that took ten times as long as the usual one is left out. It was a pause, such as of
        a suspended machine, and says nothing about the steps to come. The result is None before the
        second step of the process.

        Args:
            step: The number of steps made so far.
            max_steps: The number of steps at the end.
            others: What else takes time, such as evaluations: after how many steps it is repeated
                (0: not at all), and how many seconds it takes.
        """
        if not self._recent:
            return 0.0 if step == max_steps else None
        longest = _PAUSE * float(np.median(self._recent))
        seconds = float(np.mean([lap for lap in self._recent if lap <= longest]))
        left = seconds * (max_steps - step)
        for interval, each_seconds in others:
            left += (max_steps // interval - step // interval) * each_seconds if interval else 0.0
        return left


class _CpuClock:
    """Measures the seconds between marks on the CPU."""

    def __init__(self) -> None:
        self._times: list[list[float]] = []  # The time between two lists is left out.

    def restart(self) -> None:
        self._times = [[time.perf_counter()]]

    def leave_out(self) -> None:
        self._times.append([time.perf_counter()])

    def mark(self) -> None:
        self._times[-1].append(time.perf_counter())

    def laps(self) -> list[float]:
        return [after - before for times in self._times for before, after in pairwise(times)]


class _CudaClock:
    """Measures the seconds between marks on the GPU, because the host may be many steps ahead."""

    def __init__(self) -> None:
        self._events: list[list[Any]] = []

    def restart(self) -> None:
        self._events = []
        self.leave_out()

    def leave_out(self) -> None:
        self._events.append([])
        self.mark()

    def mark(self) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream())
        self._events[-1].append(event)

    def laps(self) -> list[float]:
        self._events[-1][-1].synchronize()
        return [
            before.elapsed_time(after) / 1000
            for events in self._events
            for before, after in pairwise(events)
        ]


def peak_memory_bytes(device: torch.device) -> int:
    """Return the peak memory so far: that of the tensors on a GPU, else that of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024

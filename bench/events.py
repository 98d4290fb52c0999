"""What the events of a run (trainer/events) cost training: a row of the trainer's table."""

from __future__ import annotations

import statistics
import time
from unittest import mock

import torch

from bench.counting_world import CountingWorld
from bench.row import Row
from bench.runs import Bench
from trainer.events.event import Event, event_file
from trainer.events.log import EventLog
from trainer.events.reports import Reports
from trainer.launch.stop_request import StopRequest
from trainer.model.allocator import keep_freed_memory
from trainer.parallel.device import choose_compute
from trainer.train import train

_BLOCK, _PAIRS = 10, 12
_MOST_SHARE = 0.001


class _Log(EventLog):
    """An event log that measures the processor time of the thread that writes it."""

    seconds = 0.0

    def _append(self, event: Event) -> None:
        begin = time.thread_time()
        super()._append(event)
        self.seconds += time.thread_time() - begin


class _Switched(Reports):
    """Reports that can be switched off, and that measure their own time in the training thread."""

    is_on = True
    seconds = 0.0
    """Processor time, which does not contain other work on the machine."""

    def stepped(
        self, step: int, step_seconds: float, longest_seconds: float, data_seconds: float
    ) -> None:
        """As in the class above."""
        begin = time.thread_time()
        if _Switched.is_on:
            super().stepped(step, step_seconds, longest_seconds, data_seconds)
        _Switched.seconds += time.thread_time() - begin

    def saved(self, step: int) -> None:
        """As in the class above."""
        begin = time.thread_time()
        if _Switched.is_on:
            super().saved(step)
        _Switched.seconds += time.thread_time() - begin


def events(bench: Bench) -> list[Row]:
    """The events' processor time in both threads, and steps with and without them in turn."""
    torch.set_num_threads(bench.threads)
    keep_freed_memory()
    updates = 2 * _BLOCK * (_PAIRS + 1) + 1
    settings = [f"--train.max_steps={updates}", "--eval.interval=0", "--checkpoint.interval=0"]
    config = bench.config("events", [*settings, f"--log.interval={_BLOCK}"])
    times: dict[bool, list[float]] = {True: [], False: []}
    begin, counted = time.thread_time(), 0

    def on_update() -> None:
        nonlocal begin, counted
        counted += 1
        if counted % (_BLOCK + 1):  # `sum` is called once more where a step is logged
            return
        now = time.thread_time()
        times[_Switched.is_on].append(now - begin)
        _Switched.is_on = not _Switched.is_on
        begin = now

    log = _Log(event_file(config.run_dir, 0), print)
    compute = choose_compute(config.train, 0)
    with mock.patch("trainer.set_up.Reports", _Switched):
        world = CountingWorld(on_update=on_update)
        train(config, world, compute, StopRequest(), lambda: None, log)
    log.close()
    on, off = times[True][1:], times[False]  # the first block holds the warm-up
    ratios = sorted(one / other for one, other in zip(on, off, strict=False))
    quarter = len(ratios) // 4
    step_seconds = statistics.median(on) / _BLOCK
    call_seconds = (_Switched.seconds + log.seconds) / (updates / 2)
    share = call_seconds / step_seconds
    return [
        Row(
            "events: processor time in both threads, logged every 10 updates",
            "<= 0.1 % of a step",
            f"{share:.3%} ({1e6 * call_seconds:.0f} us of {1e3 * step_seconds:.1f} ms)",
            share <= _MOST_SHARE,
        ),
        Row(
            f"events: processor time of {_BLOCK} updates with them against without, in turn",
            "-",
            f"{statistics.median(ratios):.4f}x (half of the {len(ratios)} pairs: "
            f"{ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f})",
            None,
        ),
    ]

"""One rank that trains and measures what looking for slow and hanging ranks costs it.

    python -m bench.watch_rank CONFIG    with RANK, WORLD_SIZE, MASTER_* set

It prints one line of JSON: the steps, their median time, and the processor time of the watch.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from unittest import mock

import torch

from trainer.config import RunConfig, load_config
from trainer.launch.stop_request import StopRequest
from trainer.parallel.device import choose_compute
from trainer.parallel.world import World
from trainer.train import train
from trainer.watch.laps import Part
from trainer.watch.slow_rank import SlowRankWatch


class _Measured(SlowRankWatch):
    """Measures its own time in the thread that trains."""

    seconds = 0.0
    """Of the processor: other work on the machine is not in it."""
    ends: list[float]

    def begin_step(self) -> None:
        """As in the class above."""
        begin = time.thread_time()
        super().begin_step()
        _Measured.seconds += time.thread_time() - begin

    def lap(self, part: Part) -> None:
        """As in the class above."""
        begin = time.thread_time()
        super().lap(part)
        _Measured.seconds += time.thread_time() - begin

    def step_done(self, is_first: bool) -> None:
        """As in the class above."""
        begin = time.thread_time()
        super().step_done(is_first)
        _Measured.seconds += time.thread_time() - begin
        _Measured.ends.append(time.thread_time())


def main() -> None:
    """Train as the configuration says; all ranks together."""
    config: RunConfig = load_config(str(Path(sys.argv[1])), [])
    torch.set_num_threads(1)
    world, _Measured.ends = World.from_environment(), []
    compute = world.connect(choose_compute(config.train, world.local_rank), config.train)
    with mock.patch("trainer.train.SlowRankWatch", _Measured):
        train(config, world, compute, StopRequest(), lambda: None)
    steps = [after - before for before, after in zip(_Measured.ends, _Measured.ends[1:], strict=False)]
    values = {
        "steps": len(_Measured.ends),
        "step_seconds": statistics.median(steps),
        "watch_seconds": _Measured.seconds,
    }
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    main()

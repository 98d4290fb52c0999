"""One rank that trains, and measures what the watch for slow and hanging ranks costs it.

    python -m bench.watch_rank CONFIG    with RANK, WORLD_SIZE, MASTER_* set

It prints one line of JSON: the steps, their median time, and the processor time of the watch.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import torch

from trainer.config import RunConfig, load_config
from trainer.launch.stop_request import StopRequest
from trainer.parallel.device import choose_compute
from trainer.parallel.world import World
from trainer.train import train
from trainer.watch.beat import Beat
from trainer.watch.slow_rank import SlowRankWatch


class _Measured(SlowRankWatch):
    """A watch that measures its own time in the thread that trains."""

    seconds = 0.0
    """Processor time, which does not contain other work on the machine."""
    ends: ClassVar[list[float]] = []

    def __init__(self, *values: Any):
        """As in the class above."""
        super().__init__(*values)
        self.begin_step = _measured(self.begin_step)
        self.lap = _measured(self.lap)
        self.to_exchange = _measured(super().to_exchange)
        done = _measured(super().step_done)

        def step_done(sums: Sequence[float]) -> None:
            done(sums)
            self.ends.append(time.thread_time())

        self.step_done = step_done


def _measured(work: Callable[..., Any]) -> Callable[..., Any]:
    """A function that measures `work`, without the time that reading the clock takes."""

    def measuring(*values: Any) -> Any:
        before = time.thread_time()
        begin = time.thread_time()
        result = work(*values)
        _Measured.seconds += time.thread_time() - begin - (begin - before)
        return result

    return measuring


def main() -> None:
    """Train as the configuration says, together with the other ranks."""
    config: RunConfig = load_config(str(Path(sys.argv[1])), [])
    torch.set_num_threads(1)
    world = World.from_environment()
    compute = world.connect(choose_compute(config.train, world.local_rank), config.train)
    for name in ("at", "phase", "enter", "leave"):
        setattr(Beat, name, _measured(getattr(Beat, name)))
    with mock.patch("trainer.set_up.SlowRankWatch", _Measured):
        train(config, world, compute, StopRequest(), lambda: None)
    steps = [after - before for before, after in pairwise(_Measured.ends)]
    values = {
        "steps": len(_Measured.ends),
        "step_seconds": statistics.median(steps),
        "watch_seconds": _Measured.seconds,
    }
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    main()

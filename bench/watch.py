"""Measures what the watch for slow and hanging ranks (trainer/watch) costs training."""

from __future__ import annotations

import json
from typing import Any

from bench.row import Row
from bench.runs import Bench

_RANKS, _STEPS = 2, 200
_MOST_SHARE = 0.002


def watch(bench: Bench) -> list[Row]:
    """The row of the processor time of two ranks' stamps and exchange, in the training thread."""
    settings = [f"--train.max_steps={_STEPS}", "--eval.interval=0", "--checkpoint.interval=0"]
    # Each rank computes what the preset computes with one.
    batch = _RANKS * bench.config("watch").train.global_batch_size
    settings += [f"--train.global_batch_size={batch}", "--log.interval=10"]
    config = bench.config("watch", settings)
    arguments = ["-m", "bench.watch_rank", str(bench.write(config))]
    logs = bench.run_ranks(arguments, config.run_dir, _RANKS)
    found: list[dict[str, Any]] = [json.loads(log.read_text().splitlines()[-1]) for log in logs]
    costs = [(each["watch_seconds"] / each["steps"], each["step_seconds"]) for each in found]
    call_seconds, step_seconds = max(costs, key=lambda cost: cost[0] / cost[1])
    share = call_seconds / step_seconds
    return [
        Row(
            f"watch: processor time of stamps and exchange, {_RANKS} ranks with the preset's batch "
            "each, the one that pays most",
            "<= 0.2 % of a step",
            f"{share:.3%} ({1e6 * call_seconds:.0f} us of {1e3 * step_seconds:.1f} ms)",
            share <= _MOST_SHARE,
        )
    ]

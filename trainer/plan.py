"""Computes how a run's time, network traffic and cost change with the number of its ranks.

This is the command `python -m trainer plan`. All functions here are pure. Nothing is measured: the
time of the arithmetic is computed from a GPU's peak and the share of it that is reached. The time
of the network is not added; the table shows how fast the network must be so that none is added.

In a ring of N ranks each rank sends (N - 1) / N of the data in a reduce-scatter or an all-gather.
An all-reduce consists of both, so each rank sends 2 (N - 1) / N of the data
(https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md). A ring over several machines
enters and leaves each machine once, so a machine's network sends as many bytes as one rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.config import RunConfig
from trainer.data.batch_plan import plan_batch
from trainer.events.cost import HOUR_SECONDS

GRADIENT_BYTES = 4  # Gradients are reduced in float32, whatever the arithmetic of the passes is.
WEIGHT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
# The backward pass's share of the arithmetic. It multiplies twice as often as the forward pass
# (arXiv:2204.02311).
BACKWARD_SHARE = 2 / 3


@dataclass(frozen=True)
class Shape:
    """The sizes of a model on which the plan depends.

    Args:
        parameters: The number of all parameters.
        block_parameters: The number of the parameters inside the transformer's blocks.
        flops_per_token: The floating-point operations for one token, forward and backward.
    """

    parameters: int
    block_parameters: int
    flops_per_token: int


@dataclass(frozen=True)
class Row:
    """One row of the table: a number of ranks, and what an update and the run take with it.

    Args:
        ranks: The number of all ranks of the run.
        micro_steps: The micro-batches that each rank computes for one update.
        idle_share: The share of the ranks' sequences that only fill up a micro-batch.
        compute_seconds: The time of the arithmetic of one update.
        sent_bytes: The bytes that each rank sends for one update.
        needed_bytes_per_second: The speed at which sending takes as long as the backward pass,
            during which it happens.
        hours: The time of the whole run, if the network is that fast.
        gpu_hours: The sum of these hours over all ranks.
    """

    ranks: int
    micro_steps: int
    idle_share: float
    compute_seconds: float
    sent_bytes: float
    needed_bytes_per_second: float
    hours: float
    gpu_hours: float


def sent_bytes(
    shape: Shape, parallel: str, dtype: str, ranks: int, micro_steps: int, reductions: int = 1
) -> float:
    """Compute the bytes that each rank sends for one update.

    `ddp` all-reduces the gradients. `fsdp` gathers weights in every micro-step: those of a block
    before its forward pass and again before its backward pass, those outside the blocks once. It
    reduces the gradients `reductions` times, and each rank keeps its part of them.
    """
    others = (ranks - 1) / ranks
    if parallel == "ddp":
        return 2 * others * shape.parameters * GRADIENT_BYTES
    gathered = shape.parameters + shape.block_parameters
    weights = micro_steps * gathered * WEIGHT_BYTES[dtype]
    return others * (weights + reductions * shape.parameters * GRADIENT_BYTES)


def plan_row(
    config: RunConfig, shape: Shape, dtype: str, ranks: int, flops_per_second: float
) -> Row:
    """Compute one row. `flops_per_second` is the speed that each rank reaches."""
    train = config.train
    split = plan_batch(train.global_batch_size, train.micro_batch_size, ranks, 0)
    micro_steps = len(split.micro_batches)
    sequences = micro_steps * split.rows  # of each rank, with those that only fill up a micro-batch
    seconds = sequences * config.model.block_size * shape.flops_per_token / flops_per_second
    reductions = micro_steps if train.reduce_each_micro_step else 1
    sent = sent_bytes(shape, train.parallel, dtype, ranks, micro_steps, reductions)
    hours = train.max_steps * seconds / HOUR_SECONDS
    return Row(
        ranks=ranks,
        micro_steps=micro_steps,
        idle_share=1 - train.global_batch_size / (sequences * ranks),
        compute_seconds=seconds,
        sent_bytes=sent,
        needed_bytes_per_second=sent / (seconds * BACKWARD_SHARE),
        hours=hours,
        gpu_hours=hours * ranks,
    )


def worlds(most: int) -> list[int]:
    """The numbers of ranks that the table shows: 1, 2, 4 and so on, and `most`."""
    doubled = [2**power for power in range(most.bit_length()) if 2**power < most]
    return [*doubled, most]


def show(rows: Sequence[Row], price_per_gpu_hour: float | None) -> str:
    """Format the table, with a line for each number of ranks."""
    heads = ["ranks", "micro-steps", "filled up", "arithmetic", "sent by a rank", "network needed"]
    heads += ["whole run", "GPU-hours", *(["price"] if price_per_gpu_hour is not None else [])]
    lines = [heads]
    for row in rows:
        cells = [
            str(row.ranks),
            str(row.micro_steps),
            f"{row.idle_share:.0%}",
            f"{_number(row.compute_seconds)} s",
            f"{_number(row.sent_bytes / 1e6)} MB",
            f"{_number(row.needed_bytes_per_second * 8 / 1e9)} Gbit/s",
            f"{_number(row.hours)} h",
            _number(row.gpu_hours),
        ]
        if price_per_gpu_hour is not None:
            cells.append(_number(row.gpu_hours * price_per_gpu_hour))
        lines.append(cells)
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def _number(value: float) -> str:
    """Format a number with three significant digits, or as a whole number from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

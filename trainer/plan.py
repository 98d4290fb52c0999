"""What becomes faster and what dearer when a run gets more ranks: `python -m trainer plan`. Pure.

Reckoned, not measured: the time of the arithmetic follows from a GPU's peak and a share of it, and
the time of the network is not added. The table says how fast the network has to be for that.

Bytes that a rank sends: in a ring each of N ranks sends (N - 1) / N of the data in a reduce-scatter
or an all-gather, and both make an all-reduce, 2 (N - 1) / N
(https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md). A ring that goes over several
machines enters and leaves each of them once, so that a machine's network sends as much as a rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.config import RunConfig
from trainer.data.batch_plan import plan_batch
from trainer.events.cost import HOUR_SECONDS

GRADIENT_BYTES = 4  # gradients are reduced in float32, whatever is multiplied in
WEIGHT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
BACKWARD_SHARE = 2 / 3  # of the arithmetic; the backward pass multiplies twice (arXiv:2204.02311)


@dataclass(frozen=True)
class Shape:
    """What of a model counts here.

    Args:
        parameters: all of them.
        block_parameters: those inside of the transformer's blocks.
        flops_per_token: forward and backward.
    """

    parameters: int
    block_parameters: int
    flops_per_token: int


@dataclass(frozen=True)
class Row:
    """A number of ranks, and what one update is with it.

    Args:
        ranks: all ranks of the run.
        micro_steps: passes of each rank for one update.
        idle_share: share of the ranks' sequences that only fill up a micro-batch.
        compute_seconds: arithmetic of one update.
        sent_bytes: by each rank, for one update.
        needed_bytes_per_second: at which sending takes as long as the backward pass, beside which
            it happens.
        hours: of the whole run, if the network is that fast.
        gpu_hours: of all ranks.
    """

    ranks: int
    micro_steps: int
    idle_share: float
    compute_seconds: float
    sent_bytes: float
    needed_bytes_per_second: float
    hours: float
    gpu_hours: float


def sent_bytes(shape: Shape, parallel: str, dtype: str, ranks: int, micro_steps: int) -> float:
    """What each rank sends for one update.

    `ddp` reduces the gradients to all ranks. `fsdp` gathers the weights of each block before its
    forward and before its backward pass, those outside of the blocks once, in every micro-step; and
    gives each rank its part of the gradients, in the last micro-step.
    """
    others = (ranks - 1) / ranks
    if parallel == "ddp":
        return 2 * others * shape.parameters * GRADIENT_BYTES
    gathered = shape.parameters + shape.block_parameters
    weights = micro_steps * gathered * WEIGHT_BYTES[dtype]
    return others * (weights + shape.parameters * GRADIENT_BYTES)


def plan_row(
    config: RunConfig, shape: Shape, dtype: str, ranks: int, flops_per_second: float
) -> Row:
    """One row; `flops_per_second` is what each rank reaches."""
    train = config.train
    split = plan_batch(train.global_batch_size, train.micro_batch_size, ranks, 0)
    micro_steps = len(split.micro_batches)
    sequences = micro_steps * split.rows  # of each rank, filled up
    seconds = sequences * config.model.block_size * shape.flops_per_token / flops_per_second
    sent = sent_bytes(shape, train.parallel, dtype, ranks, micro_steps)
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
    """1, 2, 4 ... and `most`."""
    doubled = [2**power for power in range(most.bit_length()) if 2**power < most]
    return [*doubled, most]


def show(rows: Sequence[Row], price_per_gpu_hour: float | None) -> str:
    """The table, a line for each number of ranks."""
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
    """Three digits, and no more than people read."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

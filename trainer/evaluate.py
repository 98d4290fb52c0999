"""Measures the loss on the validation split, over all of its tokens or over a fixed part."""

# pyright: reportUnknownMemberType=false
from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch

from trainer.data.batch_plan import split_evenly
from trainer.data.dataset import Dataset
from trainer.data.gather import gather, to_device
from trainer.model.gpt import GPT
from trainer.parallel.world import World


@dataclass(frozen=True)
class Validation:
    """The result of one evaluation.

    Args:
        loss: The mean loss in nats per token.
        bits_per_byte: The same loss in bits per byte of text.
        is_part: Whether only a part of the split was evaluated.
        compared_loss: The loss by which checkpoints are compared, in nats per token. It is measured
            over the same tokens in all evaluations of the run.
    """

    loss: float
    bits_per_byte: float
    is_part: bool
    compared_loss: float

    @property
    def is_finite(self) -> bool:
        """Whether both losses are finite numbers. In float16 a loss may overflow."""
        return math.isfinite(self.loss) and math.isfinite(self.compared_loss)


def evaluate(
    model: GPT,
    dataset: Dataset,
    batch_size: int,
    world: World,
    device: torch.device,
    autocast: Callable[[], AbstractContextManager[object]],
    should_stop: Callable[[], bool],
    forward_is_collective: bool = False,
    compiled: Callable[..., torch.Tensor] | None = None,
    max_tokens: int | None = None,
) -> Validation | None:
    """Measure the loss over the validation split; each rank evaluates a share of it.

    The split is cut into consecutive windows of `block_size` tokens. The tail, which is shorter
    than a window, is evaluated too. No random numbers are used, and the model is left in training
    mode. All ranks must call this function.

    `should_stop` is called equally often on all ranks, before each pass; its batch is read by then,
    which may take long. If it returns True, the result is None. `forward_is_collective` says that
    every pass needs all ranks; then a rank without a window runs one that does not count.
    `compiled` is the same model, compiled for batches of the full size, which have one shape.

    If the split has more than `max_tokens` tokens, only as many windows as fit into this number are
    evaluated, but at least one. They are always the same windows, evenly spread over the split.
    Their bytes of text are then taken to be the same share of all bytes as their tokens are.
    """
    length, targets = model.config.block_size, len(dataset.val) - 1
    passes, predicted = _passes(targets, length, batch_size, world, max_tokens)
    # The sum stays on the device and is read once, at the end.
    total = torch.zeros((), dtype=torch.float64, device=device)
    model.eval()
    try:
        with torch.no_grad():
            for windows, tokens in passes:
                starts = np.array(windows or [0], np.int64) * length
                is_run = bool(windows) or forward_is_collective
                batch = gather(dataset.val, starts, tokens) if is_run else None
                if should_stop():
                    return None
                if batch is None:
                    continue
                is_full = len(starts) == batch_size and tokens == length
                forward = compiled if compiled is not None and is_full else model
                # If each block is compiled, `model` would compile the blocks anew for this shape.
                stance = nullcontext() if is_full else torch.compiler.set_stance("force_eager")
                with autocast(), stance:
                    nats = forward(*to_device(batch, device))
                if windows:
                    total += nats
    finally:
        model.train()
    (nats,) = world.sum([float(total)])
    text_bytes = dataset.val_bytes * predicted / targets
    return Validation(
        loss=nats / predicted,
        bits_per_byte=nats / math.log(2) / text_bytes,
        is_part=predicted < targets,
        compared_loss=nats / predicted,
    )


def _passes(
    targets: int, length: int, batch_size: int, world: World, max_tokens: int | None
) -> tuple[list[tuple[list[int], int]], int]:
    """List this rank's forward passes, and count the tokens that all ranks predict together.

    A pass is the numbers of its windows, and the tokens of each of these windows. All ranks have
    equally many passes.
    """
    full_windows, tail = divmod(targets, length)
    windows = list(range(full_windows))
    if max_tokens is not None and max_tokens < targets and full_windows:
        count = max(1, min(max_tokens // length, full_windows))
        windows, tail = [place * full_windows // count for place in range(count)], 0
    shares = split_evenly(len(windows), world.size)
    mine = windows[shares[world.rank].start : shares[world.rank].stop]
    passes = [
        (mine[first : first + batch_size], length) for first in range(0, len(shares[0]), batch_size)
    ]
    if tail:
        is_mine = world.rank == world.size - 1  # No rank has a smaller share than the last rank.
        passes.append(([full_windows] if is_mine else [], tail))
    return passes, len(windows) * length + tail

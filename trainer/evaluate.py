"""The loss on the validation split: every token, or a fixed part of them, is predicted once."""

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
    """The result of one pass.

    Args:
        loss: nats per token.
        bits_per_byte: the same in bits per byte of text.
        is_part: whether the pass took only a part of the split.
        compared_loss: nats per token over the same tokens as in all other passes of the run.
    """

    loss: float
    bits_per_byte: float
    is_part: bool
    compared_loss: float

    @property
    def is_finite(self) -> bool:
        """Whether a loss was measured; in float16 it may overflow."""
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
    """One pass over consecutive windows, each rank a share, the tail shorter than a window too.

    `max_tokens`: where the split has more, only so many windows as hold them (at least one), always
    the same ones, evenly spread over the split; then the bytes of their text are taken to be the
    same share of all as the tokens are.

    `should_stop` is asked before every batch, by all ranks equally often; then the result is None.
    `forward_is_collective`: every forward pass needs all ranks, so those without a window run one
    that does not count. `compiled`: the same model, for batches of the full size, which alone have
    always the same shape. Uses no random numbers and leaves the model in training mode.
    """
    length, targets = model.config.block_size, len(dataset.val) - 1
    passes, predicted = _passes(targets, length, batch_size, world, max_tokens)
    total = torch.zeros((), dtype=torch.float64, device=device)  # read once, at the end
    model.eval()
    try:
        with torch.no_grad():
            for windows, tokens in passes:
                if should_stop():
                    return None
                if not (windows or forward_is_collective):
                    continue
                starts = np.array(windows or [0], np.int64) * length
                is_full = len(starts) == batch_size and tokens == length
                forward = compiled if compiled is not None and is_full else model
                # Where each block is compiled, `model` would compile them anew for this shape.
                stance = nullcontext() if is_full else torch.compiler.set_stance("force_eager")
                with autocast(), stance:
                    nats = forward(*to_device(gather(dataset.val, starts, tokens), device))
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
    """The windows of each forward pass of this rank, and their tokens; and the tokens of all ranks.

    All ranks have equally many passes.
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
        is_mine = world.rank == world.size - 1  # its share is a smallest one
        passes.append(([full_windows] if is_mine else [], tail))
    return passes, len(windows) * length + tail

"""The exact loss on the validation split: every token is predicted once, by all ranks together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch

from trainer.batch_plan import split_evenly
from trainer.dataset import Dataset, gather
from trainer.distributed import World
from trainer.model import GPT


@dataclass(frozen=True)
class Validation:
    """The result of one pass: nats per token, and bits per byte of text."""

    loss: float
    bits_per_byte: float


def evaluate(
    model: GPT,
    dataset: Dataset,
    batch_size: int,
    world: World,
    device: torch.device,
    autocast: Callable[[], AbstractContextManager[object]],
    should_stop: Callable[[], bool],
    in_lockstep: bool = False,
) -> Validation | None:
    """One pass over consecutive windows, each rank a share, the tail shorter than a window too.

    `should_stop` is asked before every batch, by all ranks equally often; then the result is None.
    `in_lockstep`: every forward pass needs all ranks, so those without a window run one that does
    not count. Uses no random numbers and leaves the model in training mode.
    """
    length, targets = model.config.block_size, len(dataset.val) - 1
    total = 0.0
    model.eval()
    try:
        with torch.no_grad():
            for windows, tokens in _passes(targets, length, batch_size, world):
                if should_stop():
                    return None
                if len(windows) or in_lockstep:
                    starts = np.array(windows or range(1), np.int64) * length
                    with autocast():
                        nats = float(model(*gather(dataset.val, starts, tokens, device)))
                    total += nats if len(windows) else 0.0
    finally:
        model.train()
    (nats,) = world.sum([total])
    return Validation(loss=nats / targets, bits_per_byte=nats / math.log(2) / dataset.val_bytes)


def _passes(
    targets: int, length: int, batch_size: int, world: World
) -> Iterator[tuple[range, int]]:
    """The windows of each forward pass of this rank and their tokens; equally many on all ranks."""
    full_windows, tail = divmod(targets, length)
    shares = split_evenly(full_windows, world.size)
    for first in range(0, len(shares[0]), batch_size):
        yield shares[world.rank][first : first + batch_size], length
    if tail:
        is_mine = world.rank == world.size - 1  # its share is a smallest one
        yield range(full_windows, full_windows + is_mine), tail

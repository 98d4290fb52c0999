"""The exact loss on the validation split: every token is predicted once, by all ranks together."""

from __future__ import annotations

import math
from collections.abc import Callable
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
) -> Validation | None:
    """One pass over consecutive windows, each rank a share, the tail shorter than a window too.

    `should_stop` is asked before every batch, by all ranks equally often; then the result is None.
    Uses no random numbers and leaves the model in training mode.
    """
    length, targets = model.config.block_size, len(dataset.val) - 1
    full_windows, tail = divmod(targets, length)
    shares = split_evenly(full_windows, world.size)
    mine = shares[world.rank]
    total = 0.0
    model.eval()
    try:
        with torch.no_grad():
            for first in range(0, len(shares[0]), batch_size):
                if should_stop():
                    return None
                windows = np.array(mine[first : first + batch_size], np.int64)
                if len(windows):
                    batch = gather(dataset.val, windows * length, length, device)
                    with autocast():
                        total += float(model(*batch))
            if tail and world.rank == world.size - 1:
                start = np.array([full_windows * length], np.int64)
                with autocast():
                    total += float(model(*gather(dataset.val, start, tail, device)))
    finally:
        model.train()
    (nats,) = world.sum([total])
    return Validation(loss=nats / targets, bits_per_byte=nats / math.log(2) / dataset.val_bytes)

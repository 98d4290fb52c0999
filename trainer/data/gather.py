"""Takes batches of windows out of a token file."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from trainer.data.tokenizer import Tokens

Batch = tuple[torch.Tensor, torch.Tensor]
IGNORED_TARGET = -100  # torch.nn.functional.cross_entropy ignores such targets.


def gather(
    tokens: Tokens,
    starts: NDArray[np.int64],
    length: int,
    rows: int | None = None,
) -> Batch:
    """Take the inputs and next-token targets of the windows at `starts`.

    Returns two int64 tensors of shape (rows, length) on the CPU. By default there is one row for
    each window. The targets of further rows add nothing to the loss; such rows keep the shape the
    same for compiled code.
    """
    windows = tokens[starts[:, None] + np.arange(length + 1)].astype(np.int64)
    inputs, targets = windows[:, :-1], windows[:, 1:]
    if rows is not None and rows > len(starts):
        missing = ((0, rows - len(starts)), (0, 0))
        inputs = np.pad(inputs, missing)
        targets = np.pad(targets, missing, constant_values=IGNORED_TARGET)
    # Both are views with a gap after each row. Such a tensor keeps its gaps in page-locked memory,
    # and torch then copies it to a GPU by way of pageable memory, for which the host waits.
    inputs, targets = np.ascontiguousarray(inputs), np.ascontiguousarray(targets)
    return torch.from_numpy(inputs), torch.from_numpy(targets)


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Return the batch on `device`. A copy to a GPU goes on while the CPU continues."""
    if device.type != "cuda":
        return batch
    inputs, targets = (part.pin_memory().to(device, non_blocking=True) for part in batch)
    return inputs, targets

"""Makes the random weights from which a run starts.

Each block of rows has a seed of its own, so a rank makes only the numbers of its own rows. The
weights are the same on any number of ranks, whether the ranks hold copies or shards.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import hashlib
import math

import torch
from torch import nn

from trainer.config import ModelConfig
from trainer.parallel.local_part import local_rows

# The std is GPT-2's 0.02 at its width of 768. At any other width it is chosen so that a layer's
# output has the same size.
_GPT2_INITIAL_STD, _GPT2_WIDTH = 0.02, 768
_BLOCK_ELEMENTS = 1 << 16


def initialise(model: nn.Module, config: ModelConfig, seed: int) -> None:
    """Fill all parameters: matrices with N(0, std), biases with 0, layer norms with 1.

    At GPT-2's width these are nanoGPT's values; narrower models start with larger values
    (docs/trainer.md). Layers that write to the residual stream are scaled by
    1 / sqrt(number of such layers), as in GPT-2.
    """
    std = _GPT2_INITIAL_STD * math.sqrt(_GPT2_WIDTH / config.n_embd)
    residual_std = std / math.sqrt(2 * config.n_layer)
    for name, parameter in model.named_parameters():
        rows, first = local_rows(parameter)
        if name.endswith("bias"):
            rows.zero_()
        elif parameter.dim() < 2:
            rows.fill_(1.0)
        else:
            is_residual = name.endswith("c_proj.weight")
            key = f"{seed}/{name}"
            _fill_normal(rows, first, len(parameter), residual_std if is_residual else std, key)


def _fill_normal(rows: torch.Tensor, first: int, all_rows: int, std: float, key: str) -> None:
    """Fill `rows`, the rows from number `first` on of a matrix that has `all_rows` rows."""
    width = rows.shape[1]
    height = max(1, _BLOCK_ELEMENTS // width)  # the number of rows in a block with one seed
    last, generator = first + len(rows), torch.Generator()
    for begin in range(first - first % height, last, height):
        digest = hashlib.blake2b(f"{key}/{begin}".encode(), digest_size=7).digest()
        generator.manual_seed(int.from_bytes(digest, "big"))
        block = torch.empty(min(height, all_rows - begin), width)
        block.normal_(0.0, std, generator=generator)
        low, high = max(begin, first), min(begin + height, last)
        rows[low - first : high - first].copy_(block[low - begin : high - begin])

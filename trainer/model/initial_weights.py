"""The weights that a run starts from, made where they are needed.

Each block of rows has a seed of its own, so a rank makes the numbers of its own rows only, and they
are the same on any number of ranks, as copies or as shards.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import hashlib
import math

import torch
from torch import nn

from trainer.config import ModelConfig
from trainer.parallel.local_part import local_rows

# GPT-2's 0.02 at its width of 768, and the same size of a layer's output at any other width.
_GPT2_INITIAL_STD, _GPT2_WIDTH = 0.02, 768
_BLOCK_ELEMENTS = 1 << 16


def initialise(model: nn.Module, config: ModelConfig, seed: int) -> None:
    """Fill all parameters: N(0, std), biases 0, layer norms 1.

    nanoGPT's values at GPT-2's width; narrower models start with larger ones (docs/trainer.md).
    Layers that write to the residual stream are scaled by 1/sqrt(their number), as in GPT-2.
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
    """Fill `rows`, which are those from `first` on of a matrix with `all_rows`."""
    width = rows.shape[1]
    height = max(1, _BLOCK_ELEMENTS // width)  # rows of a block
    last, generator = first + len(rows), torch.Generator()
    for begin in range(first - first % height, last, height):
        digest = hashlib.blake2b(f"{key}/{begin}".encode(), digest_size=7).digest()
        generator.manual_seed(int.from_bytes(digest, "big"))
        block = torch.empty(min(height, all_rows - begin), width)
        block.normal_(0.0, std, generator=generator)
        low, high = max(begin, first), min(begin + height, last)
        rows[low - first : high - first].copy_(block[low - begin : high - begin])

"""FSDP2: every rank holds a part of each tensor of the model, and its optimiser only that part.

Imported only where it is used: torch's part of it takes as long to import as the rest of torch.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

from typing import cast

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from trainer.device import Compute
from trainer.distributed import World
from trainer.model import GPT


def shard(model: GPT, compute: Compute, world: World) -> float:
    """Shard `model` in place, block by block.

    Returns the factor on the loss that makes the gradients sums over the ranks.
    """
    mesh = init_device_mesh(compute.device.type, (world.size,))
    low_precision = None if compute.dtype == torch.float32 else compute.dtype
    policy = MixedPrecisionPolicy(param_dtype=low_precision, reduce_dtype=torch.float32)
    for block in model.blocks:
        if compute.compile:  # each block by itself: FSDP2's hooks stay outside of the graphs
            block.compile()
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    # FSDP2 asks the collectives for the average of the gradients. Gloo adds them up all the same
    # and says nothing (torch 2.7), so it is measured.
    ones = torch.ones(world.size, device=compute.device)
    average = torch.empty(1, device=compute.device)
    dist.reduce_scatter_tensor(average, ones, op=dist.ReduceOp.AVG)
    return world.size / float(average)


def set_reduces(model: GPT, reduces: bool) -> None:
    """Whether the next backward pass reduces the gradients over the ranks."""
    cast(FSDPModule, model).set_requires_gradient_sync(reduces)


def free_gathered(model: GPT) -> None:
    """Drop the whole weights that a forward pass has gathered."""
    cast(FSDPModule, model).reshard()


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Gather a sharded tensor; others are returned as they are. All ranks must call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def my_part(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Shard `tensor` as `like` is, without communication; others are returned as they are."""
    if not isinstance(like, DTensor) or tensor.shape != like.shape:
        return tensor
    on_device = tensor.to(like.device)
    return distribute_tensor(on_device, like.device_mesh, like.placements, src_data_rank=None)

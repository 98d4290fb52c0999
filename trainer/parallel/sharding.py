"""FSDP2: every rank holds a part of each tensor of the model, and its optimiser only that part.

Imported only where it is used: torch's part of it takes as long to import as the rest of torch.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from trainer.model.gpt import GPT, compile_blocks
from trainer.parallel.device import Compute
from trainer.parallel.world import World

_REPLACES = "disttrain_replaces"


def shard(model: GPT, compute: Compute, world: World) -> float:
    """Shard `model` in place, block by block.

    Returns the factor on the loss that makes the gradients sums over the ranks.
    """
    mesh = init_device_mesh(compute.device.type, (world.size,))
    low_precision = None if compute.dtype == torch.float32 else compute.dtype
    policy = MixedPrecisionPolicy(
        param_dtype=low_precision,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,  # the sum that runs through the blocks stays in float32
    )
    if compute.compile:
        compile_blocks(model)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return _gradient_factor(compute, world, mesh, policy)


def _gradient_factor(
    compute: Compute, world: World, mesh: DeviceMesh, policy: MixedPrecisionPolicy
) -> float:
    """The factor for the loss, measured by a backward pass with a known gradient.

    FSDP2 asks the collectives for the average of the gradients. With torch 2.7, gloo adds them up
    and gives no warning; other versions divide before they add.
    """
    probe = nn.Linear(1, world.size, bias=False, device=compute.device)
    fully_shard(probe, mesh=mesh, mp_policy=policy)
    ones = torch.ones(1, 1, device=compute.device)
    with torch.autocast(compute.device.type, compute.dtype, compute.dtype != torch.float32):
        probe(ones).sum().backward()  # a gradient of 1 for each weight on every rank
    gradient = probe.weight.grad
    assert isinstance(gradient, DTensor)
    return world.size / float(gradient.full_tensor()[0, 0])


def set_reduces(model: GPT, reduces: bool) -> None:
    """Whether the next backward pass reduces the gradients over the ranks."""
    cast(FSDPModule, model).set_requires_gradient_sync(reduces)


def free_gathered(model: GPT) -> None:
    """Drop the whole weights that a forward pass has gathered."""
    cast(FSDPModule, model).reshard()


def watch_collectives(entering: Callable[[], None], left: Callable[[], None]) -> None:
    """Have the collectives inside of the passes tell when they are entered and left.

    FSDP2 has no hook for it, so torch's two functions are replaced by ones that call them.
    """
    for name in ("all_gather_into_tensor", "reduce_scatter_tensor"):
        found = getattr(dist, name)
        collective = getattr(found, _REPLACES, found)

        @functools.wraps(collective)
        def telling(*values: Any, _collective: Any = collective, **more: Any) -> Any:
            entering()
            try:
                return _collective(*values, **more)
            finally:
                left()

        setattr(telling, _REPLACES, collective)
        setattr(dist, name, telling)


def gather_full(tensor: torch.Tensor) -> torch.Tensor:
    """Gather a sharded tensor; others are returned as they are. All ranks must call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

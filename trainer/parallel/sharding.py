"""Shards the model with FSDP2.

Every rank holds a part of each tensor of the model, and its optimizer holds the state of that part
only. This module is imported only when it is used, because the import of torch's FSDP2 takes as
long as that of the rest of torch.
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

    Returns:
        The factor for the loss with which the gradients become sums over the ranks.
    """
    mesh = init_device_mesh(compute.device.type, (world.size,))
    low_precision = None if compute.dtype == torch.float32 else compute.dtype
    policy = MixedPrecisionPolicy(
        param_dtype=low_precision,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,  # The residual stream stays in float32.
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
    """Measure the factor for the loss, by a backward pass with a known gradient.

    FSDP2 asks the collectives for the average of the gradients. With torch 2.7, gloo returns their
    sum without a warning; other versions divide before they add.
    """
    probe = nn.Linear(1, world.size, bias=False, device=compute.device)
    fully_shard(probe, mesh=mesh, mp_policy=policy)
    ones = torch.ones(1, 1, device=compute.device)
    with torch.autocast(compute.device.type, compute.dtype, compute.dtype != torch.float32):
        probe(ones).sum().backward()  # The gradient of each weight is 1 on every rank.
    gradient = probe.weight.grad
    assert isinstance(gradient, DTensor)
    return world.size / float(gradient.full_tensor()[0, 0])


def set_reduces(model: GPT, reduces: bool) -> None:
    """Set whether the next backward pass reduces the gradients over the ranks."""
    cast(FSDPModule, model).set_requires_gradient_sync(reduces)


def free_gathered(model: GPT) -> None:
    """Free the whole weights that a forward pass has gathered."""
    cast(FSDPModule, model).reshard()


def watch_collectives(entering: Callable[[], None], left: Callable[[], None]) -> None:
    """Call `entering` before each collective inside the passes, and `left` after it.

    FSDP2 has no hook for this. So the two functions of torch.distributed that it calls are replaced
    by functions that call them.
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
    """Return a sharded tensor whole, and any other tensor unchanged. All ranks must call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

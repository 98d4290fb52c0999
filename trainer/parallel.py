"""The model as the ranks train it together: alone, as copies (DDP) or in shards (FSDP2).

What is saved and loaded are whole tensors by parameter name, whichever way it is trained. So a
checkpoint of one way and one number of ranks continues in any other.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

from functools import partial
from typing import cast

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint as recompute

from trainer.config import TrainConfig
from trainer.device import Compute
from trainer.distributed import World
from trainer.exit_codes import FatalError
from trainer.model import GPT


class Parallel:
    """One rank's part of the model, ready for training passes."""

    def __init__(self, model: GPT, train: TrainConfig, compute: Compute, world: World):
        """Change `model` in place as the settings ask; make the optimiser after this.

        Raises:
            FatalError: the collectives of this machine cannot do it.
        """
        self._model = model
        self._module: nn.Module = model
        self._kind = train.parallel if world.size > 1 else "alone"
        self._gradient_factor = float(world.size)  # DDP averages over the ranks: undone here
        self._recomputes = train.activation_checkpointing
        if self._recomputes:
            for block in model.blocks:
                # Inside the hooks of FSDP2, so that the weights are there for both passes.
                block.forward = partial(recompute, block.forward, use_reentrant=False)
        if self._kind == "fsdp":
            if compute.device.type == "cuda" and compute.backend != "nccl":
                raise FatalError(
                    f"train.parallel: 'fsdp' on GPUs needs train.backend nccl, it is "
                    f"{compute.backend!r}; allowed with it: ddp"
                )
            from trainer import sharding  # half of torch: its import takes as long as torch's own

            self._sharding = sharding
            self._gradient_factor = sharding.shard(model, compute, world)
            return
        if compute.compile:
            self._module = cast(nn.Module, torch.compile(model))
        if self._kind == "ddp":
            device_ids = [compute.device] if compute.device.type == "cuda" else None
            self._module = DistributedDataParallel(
                self._module, device_ids, gradient_as_bucket_view=True
            )

    def describe(self) -> str:
        """One line for the log."""
        how = {
            "alone": "one rank: nothing to share",
            "ddp": "ddp: each rank has the whole model",
            "fsdp": "fsdp: each rank has a shard of weights, gradients and optimiser",
        }[self._kind]
        return f"parallel {how}; activation checkpointing {'on' if self._recomputes else 'off'}"

    def loss(self, tokens: torch.Tensor, targets: torch.Tensor, reduces: bool) -> torch.Tensor:
        """The loss summed over this micro-batch; `reduces`: its backward adds over the ranks.

        DDP decides in the forward pass whether to reduce, FSDP2 in the backward pass.
        """
        if isinstance(self._module, DistributedDataParallel):
            self._module.require_backward_grad_sync = reduces
        elif self._kind == "fsdp":
            self._sharding.set_reduces(self._model, reduces)
        return self._module(tokens, targets)

    def for_sum(self, loss: torch.Tensor) -> torch.Tensor:
        """`loss` scaled such that the gradients become sums over the ranks."""
        return loss * self._gradient_factor

    @property
    def changes_order_after_first_pass(self) -> bool:
        """DDP reorders its buckets then, and with them the additions in the all-reduce."""
        return self._kind == "ddp"

    @property
    def in_lockstep(self) -> bool:
        """Whether every forward pass needs all ranks, in evaluation too."""
        return self._kind == "fsdp"

    def free_gathered(self) -> None:
        """Drop whole weights that a pass without a backward pass has left in memory."""
        if self._kind == "fsdp":
            self._sharding.free_gathered(self._model)

    @property
    def has_whole(self) -> bool:
        """Whether each rank has all of every tensor, so that `whole` asks no other rank."""
        return self._kind != "fsdp"

    def whole(self, tensor: torch.Tensor) -> torch.Tensor:
        """The whole of a tensor that may be sharded; all ranks must call it."""
        return self._sharding.whole(tensor) if self._kind == "fsdp" else tensor

    def my_part(self, tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """The inverse: this rank's part of `tensor` where `like` is sharded."""
        return self._sharding.my_part(tensor, like) if self._kind == "fsdp" else tensor

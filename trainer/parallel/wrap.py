"""Prepares the model for training on one rank, with copies on all ranks (DDP), or sharded (FSDP2).

A run can continue from a checkpoint in another of these ways, and with another number of ranks: see
checkpoint/layout.py.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainer.config import TrainConfig
from trainer.launch.exit_codes import FatalError
from trainer.model.gpt import GPT, Block, compile_blocks
from trainer.parallel.device import Compute
from trainer.parallel.world import World


class Parallel:
    """One rank's part of the model, ready for training passes."""

    def __init__(
        self,
        model: GPT,
        train: TrainConfig,
        compute: Compute,
        world: World,
        fill: Callable[[], None] = lambda: None,
    ):
        """Change `model` in place as the settings require. Make the optimizer after this.

        A model on the meta device gets memory here, only for this rank's part of it. Then `fill` is
        called to give the parameters their values.

        Raises:
            FatalError: train.parallel is fsdp on a GPU, and train.backend is not nccl.
        """
        self._model = model
        self._module: nn.Module = model
        self.evaluated: nn.Module = model
        """The model for the evaluation: compiled if training is, but without DDP around it."""
        self._kind = train.parallel if world.has_group else "alone"
        self._gradient_factor = float(world.size)  # DDP averages over the ranks; this undoes it.
        self._reduces = True
        self._reduces_each = train.reduce_each_micro_step
        self._recomputes = train.activation_checkpointing
        for block in model.blocks:
            # The block recomputes inside the hooks of FSDP2, so that both passes have the weights.
            cast(Block, block).recomputes = self._recomputes
        if self._kind == "fsdp":
            if compute.device.type == "cuda" and compute.backend != "nccl":
                raise FatalError(
                    "train.parallel: 'fsdp' cannot be used: on GPUs it needs train.backend nccl, "
                    f"which is {compute.backend!r}. Set train.backend: nccl or train.parallel: ddp."
                )
            from trainer.parallel import (
                sharding,  # Its import takes as long as that of torch.
            )

            self._sharding = sharding
            self._gradient_factor = sharding.shard(model, compute, world)
            _give_memory(model, compute.device)
            fill()
            return
        _give_memory(model, compute.device)
        fill()
        if compute.compile and self._recomputes and self._kind == "ddp":
            # DDP cuts a compiled graph into its buckets. It cannot do so inside a recomputed block
            # (NotImplementedError at the first step). So each block becomes a graph of its own.
            compile_blocks(model)
        elif compute.compile:
            # Training and evaluation have batches of one size each. By default torch compiles the
            # second of them for any size, which is slower.
            self._module = cast(nn.Module, torch.compile(model, dynamic=False))
        self.evaluated = self._module
        if self._kind == "ddp":
            device_ids = [compute.device] if compute.device.type == "cuda" else None
            self._module = DistributedDataParallel(
                self._module, device_ids, gradient_as_bucket_view=True
            )

    def describe(self) -> str:
        """Describe the way of training in one line for the log."""
        how = {
            "alone": "one rank: nothing to share",
            "ddp": "ddp: each rank has the whole model",
            "fsdp": "fsdp: each rank has a shard of weights, gradients and optimiser",
        }[self._kind]
        return f"parallel {how}; activation checkpointing {'on' if self._recomputes else 'off'}"

    def loss(self, tokens: torch.Tensor, targets: torch.Tensor, reduces: bool) -> torch.Tensor:
        """Return the sum of the losses of this micro-batch, in nats.

        `reduces` says whether the backward pass of this loss adds the gradients over the ranks;
        with `train.reduce_each_micro_step`, FSDP2 always does. DDP decides this in the forward
        pass, FSDP2 in the backward pass.
        """
        self._reduces = reduces
        if isinstance(self._module, DistributedDataParallel):
            self._module.require_backward_grad_sync = reduces
        elif self._kind == "fsdp":
            self._sharding.set_reduces(self._model, reduces or self._reduces_each)
        return self._module(tokens, targets)

    def scale_for_grad_sum(self, loss: torch.Tensor) -> torch.Tensor:
        """Scale `loss`, so that the gradients become sums over the ranks."""
        return loss * self._gradient_factor

    def watch_collectives(self, entering: Callable[[], None], left: Callable[[], None]) -> None:
        """Call `entering` when a pass comes to a collective, and `left` when that has ended.

        With ddp only `entering` is called, once the last gradient is computed. The collective then
        ends with the backward pass.
        """
        if self._kind == "ddp":

            def has_gradient(_: torch.Tensor) -> None:
                if self._reduces:
                    entering()

            # This weight is used first in the forward pass, and so gets its gradient last.
            self._model.wte.weight.register_post_accumulate_grad_hook(has_gradient)
        elif self._kind == "fsdp":
            self._sharding.watch_collectives(entering, left)

    @property
    def needs_bucket_warmup(self) -> bool:
        """Whether the first backward pass changes the order of additions, as with DDP."""
        return self._kind == "ddp"

    @property
    def forward_is_collective(self) -> bool:
        """Whether every forward pass needs all ranks, also in the evaluation."""
        return self._kind == "fsdp"

    def free_gathered(self) -> None:
        """Free the whole weights that a forward pass without a backward pass has left in memory."""
        if self._kind == "fsdp":
            self._sharding.free_gathered(self._model)

    def gather_full(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the whole of a tensor that may be sharded. All ranks must call it."""
        return self._sharding.gather_full(tensor) if self._kind == "fsdp" else tensor


def _give_memory(model: GPT, device: torch.device) -> None:
    if model.wte.weight.is_meta:
        model.to_empty(device=device)

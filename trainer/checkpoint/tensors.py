"""Names the tensors of a model and its optimizer, as a checkpoint holds them."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

from typing import cast

import torch
from torch import nn


def model_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the weights as `model.<parameter>`: whole tensors or this rank's shards."""
    return {f"model.{name}": parameter for name, parameter in model.named_parameters()}


def state_tensors(model: nn.Module, optimizer: torch.optim.AdamW) -> dict[str, torch.Tensor]:
    """Return the weights, and AdamW's state as `optimizer.<parameter>.<kind>`."""
    state = cast(dict[torch.Tensor, dict[str, torch.Tensor]], optimizer.state)
    tensors = model_tensors(model)
    for name, parameter in model.named_parameters():
        for kind, tensor in state[parameter].items():
            tensors[f"optimizer.{name}.{kind}"] = tensor
    return tensors


def give_memory(optimizer: torch.optim.AdamW) -> None:
    """Make the state tensors of a fused AdamW, to be filled from a checkpoint.

    Otherwise AdamW makes them at its first step.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            optimizer.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.empty_like(parameter.detach()),
                "exp_avg_sq": torch.empty_like(parameter.detach()),
            }

"""Multiplies by dense layers, with the matrix library that is fastest on this CPU.

PyTorch multiplies float32 matrices on the CPU by MKL, which does not use the AVX-512 units of AMD's
processors, and so reaches half their speed. oneDNN, which is part of PyTorch, uses these units
(docs/trainer.md has the figures). Both libraries compute the same sums in float32, but in a
different order of additions.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Multiply x (..., I) by the transpose of weight (O, I), and add bias (O,), giving (..., O)."""
    plain = (
        x.device.type != "cpu"
        or x.dtype != torch.float32
        or torch.is_autocast_enabled("cpu")
        or torch.compiler.is_compiling()
        or not onednn_is_faster()
    )
    if plain:
        return F.linear(x, weight, bias)
    # x is given as one matrix. For more dimensions oneDNN's operator returns a view, and PyTorch
    # refuses to change a view in place that was made inside an autograd function.
    rows = cast(torch.Tensor, _OneDnnLinear.apply(x.reshape(-1, x.shape[-1]), weight, bias))
    return rows.view(*x.shape[:-1], weight.shape[0])


@functools.cache
def onednn_is_faster() -> bool:
    """Whether this CPU has AVX-512 and is not Intel's, and PyTorch has oneDNN.

    This is decided by the kind of the CPU and not by a measurement, because a run that continues
    must take the same path as before.
    """
    return (
        torch.backends.cpu.get_cpu_capability() == "AVX512"
        and not _is_intel(Path("/proc/cpuinfo"))
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")  # private; torch is pinned
    )


def _is_intel(cpuinfo: Path) -> bool:
    try:
        return "GenuineIntel" in cpuinfo.read_text()
    except OSError:  # This is not Linux, so PyTorch's own choice stays.
        return True


def _onednn(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    operators = cast(Any, torch.ops.mkldnn)
    return operators._linear_pointwise(x, weight, bias, "none", [], "")


class _OneDnnLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute (N, O) from x (N, I)."""
        ctx.save_for_backward(x, weight)
        return _onednn(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        (grad,) = grads
        grad_x = _onednn(grad, weight.t(), None) if ctx.needs_input_grad[0] else None
        grad_weight = _onednn(grad.t(), x.t(), None) if ctx.needs_input_grad[1] else None
        grad_bias = grad.sum(0) if ctx.needs_input_grad[2] else None
        return grad_x, grad_weight, grad_bias

"""Counts updates whose gradients were not finite, without waiting for the GPU."""

# pyright: reportUnknownMemberType=false
from __future__ import annotations

import math

import torch

MOST_SKIPPED_IN_A_ROW = 50


def finite_or_none(value: float) -> float | None:
    """The value as JSON can hold it: None where it is not finite."""
    return value if math.isfinite(value) else None


class FiniteCheck:
    """Sees the gradient norm of every update; asked only where a step is logged or saved.

    float16's gradient scaler skips an update whose gradients overflow, which is part of its work;
    50 in a row are not. In any other arithmetic one such update is the end of the training.
    """

    def __init__(self, device: torch.device, skips_updates: bool):
        """`skips_updates`: whether a gradient scaler skips updates that are not finite."""
        self._skips_updates = skips_updates
        self._limit = MOST_SKIPPED_IN_A_ROW if skips_updates else 1
        self._in_a_row = torch.zeros((), dtype=torch.int64, device=device)
        self._skipped = torch.zeros((), dtype=torch.int64, device=device)

    def note(self, grad_norm: torch.Tensor) -> None:
        """Call it after every update."""
        is_bad = (~torch.isfinite(grad_norm)).to(self._in_a_row)
        self._in_a_row = (self._in_a_row + 1) * is_bad
        self._skipped = self._skipped + is_bad

    def skipped(self) -> int:
        """Updates since the start of this process whose gradients were not finite."""
        return int(self._skipped)

    def first_bad_step(self, step: int, loss: float) -> int | None:
        """The step at which the training was lost, None while it is not.

        Args:
            step: the last one.
            loss: of that step.
        """
        in_a_row = int(self._in_a_row)
        if in_a_row >= self._limit:
            return step - in_a_row + 1
        return None if self._skips_updates or math.isfinite(loss) else step

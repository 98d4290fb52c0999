"""Counts updates whose gradients were not finite, without waiting for the GPU."""

# pyright: reportUnknownMemberType=false
from __future__ import annotations

import math

import torch

MOST_SKIPPED_IN_A_ROW = 50


def finite_or_none(value: float) -> float | None:
    """Return the value, or None if it is not finite, which JSON cannot hold."""
    return value if math.isfinite(value) else None


class FiniteCheck:
    """Counts the updates whose gradient norm is not finite.

    The counts are read only when a step is logged or saved, because that waits for the GPU.
    float16's gradient scaler skips an update whose gradients overflow, which is normal, but 50
    skipped updates in a row are not. In any other arithmetic one such update ends the training.
    """

    def __init__(self, device: torch.device, skips_updates: bool):
        """`skips_updates` says whether a gradient scaler skips updates that are not finite."""
        self._skips_updates = skips_updates
        self._limit = MOST_SKIPPED_IN_A_ROW if skips_updates else 1
        self._in_a_row = torch.zeros((), dtype=torch.int64, device=device)
        self._skipped = torch.zeros((), dtype=torch.int64, device=device)

    def note(self, grad_norm: torch.Tensor) -> None:
        """Note the gradient norm of an update. Call this after every update."""
        is_bad = (~torch.isfinite(grad_norm)).to(self._in_a_row)
        self._in_a_row = (self._in_a_row + 1) * is_bad
        self._skipped = self._skipped + is_bad

    def skipped(self) -> int:
        """The number of updates since the start of this process whose gradients were not finite."""
        return int(self._skipped)

    def first_bad_step(self, step: int, loss: float) -> int | None:
        """Return the first step from which on training has diverged, or None if it has not.

        Args:
            step: The last step.
            loss: The loss of the last step, in nats per token.
        """
        in_a_row = int(self._in_a_row)
        if in_a_row >= self._limit:
            return step - in_a_row + 1
        return None if self._skips_updates or math.isfinite(loss) else step

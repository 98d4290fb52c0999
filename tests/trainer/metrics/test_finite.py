"""The step at which a training got a number that is not finite."""

from __future__ import annotations

import math

import pytest
import torch

from trainer.metrics.finite import MOST_SKIPPED_IN_A_ROW, FiniteCheck


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_the_first_bad_step_is_named_later(value: float) -> None:
    """The first step whose norm is not finite is named, although norms are looked at only at logged
    steps.
    """
    check = FiniteCheck(torch.device("cpu"), skips_updates=False)
    for step in range(1, 11):
        check.note(torch.tensor(1.0 if step < 7 else value))
    assert check.first_bad_step(10, value) == 7
    assert check.skipped() == 4


def test_a_scaler_may_skip_updates_but_not_for_ever() -> None:
    """A gradient scaler may skip updates, but `MOST_SKIPPED_IN_A_ROW` of them in a row end the
    training, and the first of these is named.
    """
    check = FiniteCheck(torch.device("cpu"), skips_updates=True)
    for _ in range(MOST_SKIPPED_IN_A_ROW - 1):
        check.note(torch.tensor(math.inf))
    assert check.first_bad_step(MOST_SKIPPED_IN_A_ROW - 1, math.inf) is None
    check.note(torch.tensor(1.0))
    assert check.first_bad_step(MOST_SKIPPED_IN_A_ROW, 1.0) is None
    for _ in range(MOST_SKIPPED_IN_A_ROW):
        check.note(torch.tensor(math.inf))
    last = 2 * MOST_SKIPPED_IN_A_ROW
    assert check.first_bad_step(last, math.inf) == MOST_SKIPPED_IN_A_ROW + 1


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_loss_that_is_not_finite_ends_training(loss: float) -> None:
    """A loss that is not finite ends the training, even if its gradient is finite."""
    check = FiniteCheck(torch.device("cpu"), skips_updates=False)
    check.note(torch.tensor(1.0))
    assert check.first_bad_step(1, 3.9) is None
    assert check.first_bad_step(1, loss) == 1

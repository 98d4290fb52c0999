"""How `bench.preemption` judges the steps that a run has written."""

import pytest

from bench.preemption_rows import Preemption, lost_steps, row

TIMES = [Preemption(2.0, 4.0), Preemption(3.0, 6.0)]
SUMS = {"model.bin": "abc"}


@pytest.mark.parametrize(
    ("steps", "lost"),
    [([1, 2, 3], 0), ([1, 2, 2, 3], 1), ([1, 3], 1), ([1, 2, 3, 2, 3, 5], 3)],
)
def test_steps_done_again_or_never_are_lost(steps: list[int], lost: int) -> None:
    """Steps that were done twice or never are lost, and with a lost step the bar is missed."""
    assert lost_steps(steps) == lost
    assert row("jobset", TIMES, steps, 0, SUMS, SUMS).met == (lost == 0)


def test_spent_restart_or_other_weights_miss_the_bar() -> None:
    """The bar is missed if a preemption spends a restart, or if the weights are others or
    missing.
    """
    good = row("jobset", TIMES, [1, 2], 0, SUMS, SUMS)
    assert good.met
    assert "p50 2.5 s" in good.measured
    assert not row("jobset", TIMES, [1, 2], 1, SUMS, SUMS).met
    assert not row("jobset", TIMES, [1, 2], 0, SUMS, {"model.bin": "other"}).met
    assert not row("jobset", TIMES, [1, 2], 0, {}, {}).met

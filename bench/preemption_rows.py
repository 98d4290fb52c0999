"""Judges what a preempted run has lost, and how long its preemptions took; pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.row import Row


@dataclass(frozen=True)
class Preemption:
    """One preemption.

    Args:
        saved_after: seconds from the start of the urgent work until the run's pods are gone.
        back_after: seconds from the end of the urgent work until the run's next step.
    """

    saved_after: float
    back_after: float


def lost_steps(steps: Sequence[int]) -> int:
    """How many of the steps up to the last one a run has written more than once, or not at all."""
    return len(steps) - len(set(steps)) + len(set(range(1, max(steps) + 1)) - set(steps))


def row(
    topology: str,
    preemptions: Sequence[Preemption],
    steps: Sequence[int],
    restarts: int,
    weights: Mapping[str, str],
    undisturbed: Mapping[str, str],
) -> Row:
    """The row of the table.

    Args:
        topology: the topology of the preempted run.
        preemptions: the preemptions of the run.
        steps: the numbers of the run's steps, in the order in which it has written them.
        restarts: how many restarts the run has spent of its budget.
        weights: checksums of the files of the run's last checkpoint.
        undisturbed: the checksums of the same files of a run that was never preempted.
    """
    lost, same = lost_steps(steps), bool(weights) and weights == undisturbed
    words = [
        f"{lost} of {max(steps)} steps lost or done again, {restarts} restarts spent, weights "
        f"{'equal' if same else 'not equal'} to those of an undisturbed run"
    ]
    for what, seconds in (
        ("the pods have saved and gone after", [each.saved_after for each in preemptions]),
        ("the next step comes", [each.back_after for each in preemptions]),
    ):
        p50, p95 = np.percentile(seconds, (50, 95))
        words.append(f"{what} p50 {p50:.1f} s, p95 {p95:.1f} s")
    return Row(
        f"a run of `{topology}` with 3 ranks, preempted {len(preemptions)} times by work of a "
        "higher priority",
        "0 steps lost, same weights",
        "; ".join(words) + " after the quota is free again",
        lost == 0 and restarts == 0 and same,
    )

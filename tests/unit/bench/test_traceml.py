"""Which answers count as right when this project's search for slow ranks is compared with
traceml-ai.
"""

import pytest

from bench.injected_rank import CLEAN, QUOTA
from bench.traceml_beside import found_by_ours, verdict
from bench.traceml_scenes import KINDS, LINK, SLOW
from trainer.watch.slow import Cause, Finding

STEPS = [f"step {number}/120 loss 4.1" for number in range(1, 81)]


def said(cause: Cause, rank: int | None = SLOW) -> str:
    """Return the line in which the watch names a slow rank with this cause."""
    return f"slow rank: {Finding(cause, rank, rank, 2.0, 0.4, 0.1)}"


@pytest.mark.parametrize(
    ("kind", "line", "words", "is_right"),
    [
        (QUOTA, said(Cause.THROTTLED), "rank 1, its CPU quota, after 7 steps", True),
        (QUOTA, said(Cause.CROWDED), "rank 1, another process on the machine", False),
        (QUOTA, said(Cause.THROTTLED, 2), "rank 2, its CPU quota, after 7 steps", False),
        (LINK, said(Cause.NETWORK, None), "no single rank, the network, after 7 steps", True),
        (LINK, said(Cause.COMPUTE), "rank 1, compute", False),
        (LINK, "", "names nobody", False),
        (CLEAN, "", "names nobody", True),
        (CLEAN, said(Cause.COMPUTE), "rank 1, compute", False),
    ],
)
def test_ours_is_right_with_rank_and_cause(
    kind: str, line: str, words: str, is_right: bool
) -> None:
    """An answer of this project is right only if it names the rank and the cause of the fault, or
    nobody where there is no fault.
    """
    clean = 3 if kind == QUOTA else 0
    log = [*STEPS[: clean + 7], line, *STEPS[clean + 7 :]]
    found, right = found_by_ours(log, clean, KINDS[kind])
    assert found.startswith(words)
    assert right == is_right


def test_ours_is_wrong_before_anything_is_done() -> None:
    """An answer that comes before the fault was made is wrong."""
    log = [*STEPS[:5], said(Cause.NETWORK, None), *STEPS[5:]]
    assert not found_by_ours(log, 10, KINDS[LINK])[1]


@pytest.mark.parametrize(
    ("issue", "rank", "is_right"),
    [("STRAGGLER", SLOW, True), ("STRAGGLER", 0, False), ("COMPUTE_BOUND", SLOW, False)],
)
def test_traceml_is_right_with_rank_and_issue(issue: str, rank: int, is_right: bool) -> None:
    """An answer of traceml-ai is right only if it names the rank and the issue of the fault."""
    summary = {"step_time": {"issues": [{"kind": issue, "ranks": [rank]}]}}
    assert verdict(summary, KINDS[LINK].issue) == (f"{issue}, rank {rank}", is_right)

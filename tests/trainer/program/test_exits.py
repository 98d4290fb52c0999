"""What the exit codes of a program mean; `docs/programs.md` has the same as a table."""

import signal

import pytest

from trainer.launch.exit_codes import ExitCode
from trainer.program.exits import is_failure, report_of


@pytest.mark.parametrize(
    ("codes", "was_asked", "meaning"),
    [
        ([0, 0], False, ExitCode.DONE),
        ([0, 1], False, ExitCode.RETRYABLE),
        ([0, 75], False, ExitCode.RETRYABLE),
        ([1, 78], False, ExitCode.FATAL),
        ([-signal.SIGTERM, 78], True, ExitCode.FATAL),
        ([-signal.SIGKILL, 143], True, ExitCode.RETRYABLE),
        ([143, 143], False, ExitCode.PREEMPTED),
        ([-signal.SIGTERM, 143], True, ExitCode.PREEMPTED),
        ([-signal.SIGTERM, 0], False, ExitCode.RETRYABLE),
        # Many programs save when they are asked to end, and end with 0. torchrun ends with 1.
        ([0, 0], True, ExitCode.PREEMPTED),
        ([1, -signal.SIGTERM], True, ExitCode.PREEMPTED),
    ],
)
def test_exit_codes_of_all_ranks_have_one_meaning(
    codes: list[int], was_asked: bool, meaning: ExitCode
) -> None:
    names = [f"rank {rank}" for rank in range(len(codes))]
    assert report_of(codes, names, [was_asked] * len(codes)).code == meaning


def test_rank_that_failed_before_the_others_were_asked_decides() -> None:
    """A rank that has failed by itself is the reason, although the other ranks were asked to end
    after that.
    """
    report = report_of([-signal.SIGTERM, 1], ["rank 0", "rank 1"], [True, False])
    assert (report.code, report.reason) == (ExitCode.RETRYABLE, "rank 1 ended with exit code 1")


@pytest.mark.parametrize(
    ("code", "was_asked", "is_one"),
    [
        (None, False, False),
        (0, False, False),
        (143, False, False),
        (1, False, True),
        (-signal.SIGTERM, False, True),
        (1, True, False),
        (-signal.SIGTERM, True, False),
        (-signal.SIGKILL, True, True),
        (78, True, True),
    ],
)
def test_end_after_a_request_is_mostly_no_failure(
    code: int | None, was_asked: bool, is_one: bool
) -> None:
    """A rank that ends by itself after it was asked to is no failure, for which the other ranks
    would be killed in the middle of their save.
    """
    assert is_failure(code, was_asked=was_asked) == is_one


def test_reason_names_the_rank_and_its_exit_code() -> None:
    report = report_of([0, 3], ["rank 4", "rank 5"], [False, False])
    assert report.reason == "rank 5 ended with exit code 3"

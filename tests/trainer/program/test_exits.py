"""What the exit codes of a program mean; `docs/programs.md` has the same as a table."""

import signal

import pytest

from trainer.launch.exit_codes import ExitCode
from trainer.program.exits import report_of


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
        # Many programs save when they are asked to end, and end with 0.
        ([0, 0], True, ExitCode.PREEMPTED),
    ],
)
def test_exit_codes_of_all_ranks_have_one_meaning(
    codes: list[int], was_asked: bool, meaning: ExitCode
) -> None:
    names = [f"rank {rank}" for rank in range(len(codes))]
    assert report_of(codes, names, was_asked=was_asked).code == meaning


def test_reason_names_the_rank_and_its_exit_code() -> None:
    report = report_of([0, 3], ["rank 4", "rank 5"], was_asked=False)
    assert report.reason == "rank 5 ended with exit code 3"

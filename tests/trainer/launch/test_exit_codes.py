"""The codes with which a pod ends, as the controllers of its workload read them."""

import os
import subprocess
import sys

import pytest

from infra.workloads.pytorchjob import KIND, RETRY_VARIABLE
from trainer.launch import exit_codes
from trainer.launch.exit_codes import ExitCode, pod_exit_code

HIGH = {RETRY_VARIABLE: "1"}


@pytest.mark.parametrize(
    ("code", "low", "high"),
    [
        (ExitCode.DONE, 0, 0),
        (ExitCode.FATAL, 78, 78),
        (ExitCode.RETRYABLE, 75, 203),
        (ExitCode.PREEMPTED, 143, 143),
        (None, 1, 129),
    ],
)
def test_what_may_be_tried_again_ends_with_128_or_more(
    code: ExitCode | None, low: int, high: int
) -> None:
    assert (pod_exit_code(code, {}), pod_exit_code(code, HIGH)) == (low, high)


def test_workload_sets_the_variable_that_the_trainer_reads() -> None:
    assert (KIND.name, RETRY_VARIABLE) == ("pytorchjob", exit_codes.RETRY_VARIABLE)


@pytest.mark.parametrize(("more", "code"), [({}, 1), (HIGH, 129)], ids=["low", "high"])
def test_crash_of_the_entrypoint_has_a_code_and_a_traceback(
    more: dict[str, str], code: int
) -> None:
    """No volume is a device, so this is an error that nobody has foreseen."""
    command = [sys.executable, "-m", "trainer", "entrypoint", "--preset", "shakespeare-char-cpu"]
    environment = {**os.environ, **more}
    done = subprocess.run(
        [*command, "--data_root=/dev/null"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "NotADirectoryError" in done.stderr

"""The exit codes of a pod, by which the controllers of its workload decide whether to start it
again.
"""

import os
import subprocess
import sys

import pytest

from infra.workloads.pytorchjob import KIND, RETRY_VARIABLE
from sandbox.venvs import PROJECT
from trainer.launch import exit_codes
from trainer.launch.exit_codes import ExitCode, pod_exit_code

HIGH = {RETRY_VARIABLE: "1"}
WORDS = ["entrypoint", "--preset", "shakespeare-char-cpu"]


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
    """With the variable of the PyTorchJob set, failures that may be tried again get an exit code of
    128 or more.
    """
    assert (pod_exit_code(code, {}), pod_exit_code(code, HIGH)) == (low, high)


def test_workload_sets_the_variable_that_the_trainer_reads() -> None:
    """The variable that the PyTorchJob sets in its pods has the name that the trainer reads."""
    assert (KIND.name, RETRY_VARIABLE) == ("pytorchjob", exit_codes.RETRY_VARIABLE)


def ended(words: list[str], more: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run Python with these words and these additional variables, and return the completed
    process.
    """
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, **more},
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("more", "code"), [({}, 1), (HIGH, 129)], ids=["low", "high"])
def test_crash_of_the_entrypoint_has_a_code_and_a_traceback(
    more: dict[str, str], code: int
) -> None:
    """An entrypoint that crashes by an unexpected error in its code prints the traceback, and ends
    with exit code 1, or 129 in a PyTorchJob.
    """
    program = (
        "import sys; from trainer.launch import entrypoint; from trainer.__main__ import main\n"
        f"entrypoint.run_entrypoint = lambda *_: 1 // 0\nsys.exit(main({WORDS}))"
    )
    done = ended(["-c", program], more)
    assert done.returncode == code, done.stderr
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.parametrize(("more", "code"), [({}, 75), (HIGH, 203)], ids=["low", "high"])
def test_volume_that_cannot_be_read_may_be_tried_again(more: dict[str, str], code: int) -> None:
    """A volume that cannot be read gives one line without a traceback, and an exit code that lets
    the pod try again, as the volume may be there a moment later.
    """
    done = ended(["-m", "trainer", *WORDS, "--data_root=/dev/null"], more)
    assert done.returncode == code, done.stderr
    assert "giving up for now: [Errno 20] Not a directory: '/dev/null/runs/" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr

"""A rank that ends without an error is named as the cause, and not the others, which report
errors.
"""

import pytest

from cli.logs.first_error import first_error
from cli.logs.line import parse_record
from tests.in_depth import in_depth
from tests.trainer.accidents import Accident
from tests.trainer.lab import Lab, free_port, last_step, wait_for
from trainer.launch.exit_codes import ExitCode
from trainer.launch.run_log import log_path

ENDLESS = {"train__max_steps": 100_000, "train__decay_steps": 200, "train__max_restarts": 0}


@pytest.mark.parametrize(
    ("kind", "words", "reason"),
    [
        (
            "no-word",
            "rank 1 ended by itself with exit status 7",
            "local rank 1 ended with exit status 7",
        ),
        in_depth("exit-of-python", "SystemExit: the licence server", "SystemExit: the licence"),
    ],
)
def test_rank_that_leaves_without_an_error_is_the_cause(
    lab: Lab, kind: str, words: str, reason: str
) -> None:
    """`./disttrain logs --first-error` and the reason of the node, which `status` shows, both name
    a rank that ended without an error.
    """
    accident = Accident(kind, 1, str(lab.root / "begun"))
    run = lab.config(**ENDLESS)
    pod = lab.start_entrypoint(run, 0, 1, 2, free_port(), accidents=[accident])
    wait_for("30 steps", lambda: last_step(run) > 30, 120, lab)
    accident.begin()
    assert pod.wait(120) == ExitCode.RETRYABLE
    text = log_path(run.run_dir, 0).read_bytes()
    lines = [line for row in text.splitlines() if (line := parse_record(row))]
    found = first_error(lines)
    assert found is not None
    assert (found.line.rank, words in found.line.text) == (1, True), found.line
    ends = [line.text for line in lines if "giving up for now" in line.text]
    assert len(ends) == 1
    assert reason in ends[0]

"""How `examples/slurm/train.sbatch` ends its job, by the exit code of its launchers.

Small programs take the places of Slurm's commands here; tests/trainer/test_slurm.py starts Slurm.
"""

import os
import subprocess
from pathlib import Path

import pytest

from sandbox.venvs import PROJECT
from trainer.launch.exit_codes import ExitCode

SCRIPT = PROJECT / "examples" / "slurm" / "train.sbatch"
JOB = {"SLURM_JOB_ID": "17", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[0-1]"}
COMMANDS = {
    "srun": 'exit "$CODE"',
    "scontrol": 'echo "$*" >>"$CALLS"; echo "NodeName=n0 NodeAddr=127.0.0.1 Port=1"',
}
KILLED = 137  # a launcher, by SIGKILL


@pytest.mark.parametrize(
    ("code", "is_put_back"),
    [
        (ExitCode.DONE, False),
        (ExitCode.FATAL, False),
        (ExitCode.RETRYABLE, False),
        (KILLED, False),
        (ExitCode.PREEMPTED, True),
    ],
)
def test_only_a_job_that_was_asked_to_end_is_put_back(
    tmp_path: Path, code: int, is_put_back: bool
) -> None:
    """Only a job whose launchers say that they were asked to end is put back into Slurm's queue.
    The job always ends with the launchers' own exit code, by which Slurm calls it completed or
    failed.
    """
    for name, line in COMMANDS.items():
        command = tmp_path / name
        command.write_text(f"#!/bin/sh\n{line}\n")
        command.chmod(0o755)
    calls = tmp_path / "calls"
    path = f"{tmp_path}:{os.environ['PATH']}"
    variables = {**os.environ, **JOB, "PATH": path, "CODE": str(code), "CALLS": str(calls)}
    done = subprocess.run(["sh", str(SCRIPT), "run.yaml"], env=variables, check=False)
    assert done.returncode == code
    assert ("requeue 17" in calls.read_text().splitlines()) == is_put_back

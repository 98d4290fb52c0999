"""The example for Slurm, run by the distribution's own slurmctld and slurmd."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.trainer.forked import CHECKOUT
from tests.trainer.lab import Lab, assert_bitwise_equal, last_step, loopback
from tests.trainer.slurm import Slurm, slurm_of
from trainer.config import RunConfig

ENDLESS = {
    "train__max_steps": 100_000,
    "train__decay_steps": 200,
    "train__spare_processes": False,  # they would import torch for restarts that do not come here
    "checkpoint__interval": 10,
}
NODES = 2


@pytest.fixture
def slurm() -> Iterator[Slurm]:
    with slurm_of(NODES) as made:
        yield made


def submit(slurm: Slurm, lab: Lab, run: RunConfig) -> str:
    """Submit the example for a run, and return the number of the job."""
    environment = {
        "PYTHON": sys.executable,
        "GLOO_SOCKET_IFNAME": loopback(),
        "OMP_NUM_THREADS": "1",
        "SRUN_OPTIONS": "--label --unbuffered",  # each line begins with the number of its node
    }
    return slurm.asked(
        "sbatch",
        "--parsable",
        f"--nodes={NODES}",
        f"--chdir={CHECKOUT}",
        f"--output={lab.root / 'slurm.log'}",
        str(CHECKOUT / "examples" / "slurm" / "train.sbatch"),
        str(lab.config_file(run)),
        environment=environment,
    )


def test_job_that_is_signalled_saves_comes_back_and_ends(lab: Lab, slurm: Slurm) -> None:
    """A job that gets SIGTERM, as before its time limit, saves and is started again by Slurm. At
    the end of the run the job ends, and the weights are those of an undisturbed run.
    """
    run = lab.config(run_name="slurm", **ENDLESS)
    job = submit(slurm, lab, run)
    assert job.isdecimal(), slurm.logs()
    slurm.wait("20 steps", lambda: last_step(run) >= 20)
    assert slurm.state(job) == "RUNNING"
    slurm.asked("scancel", "--signal=TERM", job)
    log = lab.root / "slurm.log"
    slurm.wait("the save", lambda: "stopped by a signal" in log.read_text())
    slurm.wait("the job to be back", lambda: "continuing after step" in log.read_text())
    reached = last_step(run)
    slurm.wait("further steps", lambda: last_step(run) > reached + 20)
    assert "2 node(s) x 1 rank(s)" in log.read_text()
    assert {line[:3] for line in log.read_text().splitlines() if "round 1: " in line} == {
        f"{node}: " for node in range(NODES)
    }
    slurm.asked("scancel", job)  # a cancelled job saves, too, and does not come back
    slurm.wait("the end", lambda: slurm.state(job) == "CANCELLED")
    settings = {**ENDLESS, "train__max_steps": last_step(run) + 5}
    last = lab.config(run_name="slurm", **settings)
    job = submit(slurm, lab, last)
    slurm.wait("the end of the run", lambda: slurm.state(job) == "COMPLETED")
    whole = lab.config(run_name="whole", **settings)
    lab.train(whole, NODES)
    assert_bitwise_equal(whole, last)

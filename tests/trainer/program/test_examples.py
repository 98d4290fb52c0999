"""The examples whose packages the trainer image does not have, on loopback. The others run in pods
(`tests/e2e/test_programs.py`).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.trainer.lab import free_port
from tests.trainer.process_tree import processes_below
from tests.trainer.program.desk import LIMIT_SECONDS, Desk
from trainer.config import RunConfig
from trainer.launch.exit_codes import ExitCode

EXAMPLES = Path(__file__).parents[3] / "examples"
PATTERN = r"step (?P<step>\d+)/(?P<total>\d+) loss (?P<loss>\S+)"
ENDLESS = 1_000_000_000


@dataclass(frozen=True)
class Example:
    """How an example is started, and on how many nodes with how many ranks each."""

    folder: str
    command: str
    per: str
    nodes: int
    ranks: int

    def config(self, desk: Desk, steps: int) -> RunConfig:
        """Return a run of the example with this number of steps."""
        shell = f"cd {EXAMPLES / self.folder} && exec {self.command} --steps {steps}"
        return desk.config("sh", "-c", shell, per=self.per, progress=PATTERN)


ACCELERATE = Example("accelerate", "python train.py", "rank", nodes=2, ranks=1)
MPIRUN = Example("ddp", "./mpirun.sh", "node", nodes=1, ranks=2)
MPIRUN_IN_TWO_PODS = Example("ddp", "./mpirun.sh", "node", nodes=2, ranks=1)
EACH = {"accelerate": ACCELERATE, "mpirun": MPIRUN, "mpirun-in-two-pods": MPIRUN_IN_TWO_PODS}


def python_below(pid: int) -> list[int]:
    """Return the pids of the ranks of an entrypoint."""
    found = list[int]()
    for each in processes_below(pid)[1:]:
        with suppress(OSError):  # a command of the shell may have ended meanwhile
            if Path(f"/proc/{each}/cmdline").read_bytes().startswith(b"python\0"):
                found.append(each)
    return found


@pytest.mark.parametrize("example", EACH.values(), ids=EACH.keys())
def test_killed_rank_of_an_example_resumes_and_ends(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, example: Example
) -> None:
    """After a kill -9 of one rank, all ranks of the example go on from its own checkpoint. After a
    stop the run can be started again and ends.
    """
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")  # the tests may run as root, pods do not
    config, port = example.config(desk, ENDLESS), free_port()

    def start(config: RunConfig) -> list[subprocess.Popen[str]]:
        nodes = range(example.nodes)
        return [desk.start(config, node, example.nodes, example.ranks, port) for node in nodes]

    pods = start(config)
    saved = config.run_dir / "program"
    desk.wait("a checkpoint", lambda: any(saved.glob("step-*")) or (saved / "newest.pt").exists())
    os.kill(python_below(pods[-1].pid)[-1], signal.SIGKILL)
    for rank in range(example.nodes * example.ranks):
        desk.wait(
            f"rank {rank} to resume",
            lambda rank=rank: f"rank {rank}: continuing after step" in desk.log(0) + desk.log(1),
        )
    assert re.findall(r"\[node 0\] round (\d+): ", desk.log(0)) == ["1", "2"]
    for pod in pods:
        pod.terminate()
    assert [pod.wait(LIMIT_SECONDS) for pod in pods] == [ExitCode.PREEMPTED] * example.nodes
    pods = start(example.config(desk, 1))  # the run has made more steps already
    desk.wait_for("run mine is finished")
    if example.nodes > 1:
        desk.wait_for("holding until SIGTERM", example.nodes - 1)
        for pod in pods:
            pod.terminate()
    assert [pod.wait(LIMIT_SECONDS) for pod in pods] == [ExitCode.DONE] * example.nodes

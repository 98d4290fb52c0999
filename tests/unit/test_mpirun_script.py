"""The ranks that `examples/ddp/mpirun.sh` gives to the processes of several pods.

Small programs take the places of mpirun and Python here. tests/trainer/program/test_examples.py
starts the example under Open MPI, in one pod, where the first rank is always 0.
"""

import os
import subprocess
from pathlib import Path

from sandbox.venvs import PROJECT

SCRIPT = PROJECT / "examples" / "ddp" / "mpirun.sh"
COMMANDS = {
    # Like mpirun, it runs the command behind `-n NUMBER` that many times, each with its local rank.
    "mpirun": (
        "while [ $1 != -n ]; do shift; done; number=$2; shift 2\n"
        'for each in $(seq 0 $((number - 1))); do OMPI_COMM_WORLD_LOCAL_RANK=$each "$@"; done'
    ),
    "python": 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $*"',
}


def test_ranks_of_several_pods_follow_each_other(tmp_path: Path) -> None:
    """The first rank of a pod follows the last rank of the pod before it, and each process gets its
    local rank and the number of all ranks.
    """
    for name, lines in COMMANDS.items():
        command = tmp_path / name
        command.write_text(f"#!/bin/sh\n{lines}\n")
        command.chmod(0o755)
    said = ""
    for pod in range(3):
        variables = {"PET_NNODES": "3", "PET_NODE_RANK": str(pod), "PET_NPROC_PER_NODE": "2"}
        environment = {**os.environ, **variables, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        said += subprocess.check_output(
            ["sh", str(SCRIPT), "--steps", "4"], env=environment, text=True
        )
    assert said.splitlines() == [f"{rank} {rank % 2} 6 train.py --steps 4" for rank in range(6)]

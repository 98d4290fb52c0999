"""A launcher that starts the ranks itself is refused where the program is started once per rank,
and where it would not find the other pods.
"""

from typing import Any

import pytest

from infra.settings.program_launcher import launchers_of
from tests.unit.settings.reading import refusal, run

COMMANDS = [
    (["torchrun", "train.py"], "torchrun"),
    (["/opt/conda/bin/torchrun", "--nproc-per-node=4", "train.py"], "torchrun"),
    (["python3", "-m", "torch.distributed.run", "train.py"], "torch.distributed.run"),
    (["python", "-u", "-m", "torch.distributed.launch", "train.py"], "torch.distributed.launch"),
    (["accelerate", "launch", "train.py"], "accelerate launch"),
    (["deepspeed", "train.py"], "deepspeed"),
    (["accelerate-launch", "train.py"], "accelerate-launch"),
    (["fabric", "run", "--devices=2", "train.py"], "fabric run"),
    (["composer", "-n", "2", "train.py"], "composer"),
    (["python", "-m", "deepspeed.launcher.runner", "train.py"], "deepspeed.launcher.runner"),
    (["uv", "run", "torchrun", "train.py"], "torchrun"),
    (["conda", "run", "-n", "mine", "--no-capture-output", "torchrun", "train.py"], "torchrun"),
    (["nsys", "profile", "-o", "report", "accelerate", "launch", "a.py"], "accelerate launch"),
    (["uv", "run", "train.py", "torchrun"], ""),
    (["uv", "run", "--with"], ""),
    (["uv", "sync"], ""),
    (["fabric"], ""),
    (["sh", "-c", "exec torchrun train.py"], "torchrun"),
    (["bash", "-lc", "torchrun train.py --lr 0.1"], "torchrun"),
    (["env", "OMP_NUM_THREADS=4", "torchrun", "train.py"], "torchrun"),
    (["sh", "-c", "OMP_NUM_THREADS=4 exec torchrun train.py"], "torchrun"),
    (["bash", "-c", "cd /program && torchrun train.py"], "torchrun"),
    (["bash", "-e", "-c", "pip install x; torchrun train.py | tee /data/log"], "torchrun"),
    (["sh", "-c", "set -e\ncd /data\ntorchrun \\\n  train.py\n"], "torchrun"),
    (["sh", "-c", "echo torchrun && python 'a && torchrun'"], ""),
    (["env"], ""),
    (["sh", "-c"], ""),
    (["python", "train.py", "torchrun"], ""),
    (["python", "-m", "train"], ""),
    (["python", "-m"], ""),
    (["accelerate", "test"], ""),
    (["sh", "-c", "python train.py"], ""),
    (["sh", "-c", "echo 'torchrun"], ""),
    (["sh", "torchrun.sh"], ""),
]


@pytest.mark.parametrize(("command", "launcher"), COMMANDS)
def test_launchers_are_known(command: list[str], launcher: str) -> None:
    assert [name for name, _ in launchers_of(command)] == ([launcher] if launcher else [])


def given(per: dict[str, str], command: list[str], **more: Any) -> dict[str, Any]:
    """Return the settings of a run of this program."""
    return {"program": {"command": command, **per}, **more}


@pytest.mark.parametrize("per", [{}, {"per": "rank"}])
def test_a_launcher_for_each_rank_is_refused(per: dict[str, str]) -> None:
    """With `per: rank`, the default, each of the three ranks would start three ranks."""
    said = refusal(given(per, ["torchrun", "train.py"]))
    assert said.count("  - ") == 1
    assert (
        "  - program.per: 'rank' cannot be used: torchrun starts the ranks itself, and would be "
        "started 3 times, once for each rank. Set node, so that it is started once in each pod, or "
        "take it out of program.command."
    ) in said


THREE = {"topology": "indexed-job", "pods": 3, "gpusPerPod": 1}


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["torchrun", "--standalone", "--nproc_per_node=1", "train.py"], "--standalone"),
        (["torchrun", "--nnodes", "1", "train.py"], "--nnodes 1"),
        (["python", "-m", "torch.distributed.run", "--nnodes=2", "train.py"], "--nnodes=2"),
        (["sh", "-c", "exec torchrun --node_rank=0 train.py"], "--node_rank=0"),
        (["torchrun", "--node-rank", "1", "--nnodes=3", "train.py"], "--node-rank 1"),
        (["python", "-m", "torch.distributed.launch", "--nnodes=1", "train.py"], "--nnodes=1"),
        (["torchrun", "--master_addr", "127.0.0.1", "train.py"], "--master_addr 127.0.0.1"),
        (
            ["torchrun", "--rdzv_backend", "c10d", "--rdzv_endpoint=localhost:0", "train.py"],
            "--rdzv_endpoint=localhost:0",
        ),
        (["torchrun", "--rdzv-backend=c10d", "train.py"], "--rdzv-backend=c10d"),
    ],
)
def test_torchrun_that_would_not_find_the_others_is_refused(
    command: list[str], option: str
) -> None:
    """In a run of several pods, options of torchrun are refused with which each pod would train or
    wait alone: torchrun prefers them to the variables of the pods.
    """
    said = refusal(given({"per": "node"}, command, **THREE))
    assert said.count("  - ") == 1
    assert (
        f"  - program.command: {option!r} cannot be used: torchrun would not find the ranks of the "
        "other pods, of which the run has 3 in all. Leave it out: torchrun reads PET_NNODES, "
        "PET_NODE_RANK and PET_MASTER_ADDR, which each pod has."
    ) in said


@pytest.mark.parametrize(
    ("command", "launcher", "option"),
    [
        (["accelerate", "launch", "train.py"], "accelerate launch", "--machine_rank"),
        (
            ["accelerate", "launch", "--num_machines=3", "--machine_rank=0", "train.py"],
            "accelerate launch",
            "--machine_rank",
        ),
        (["deepspeed", "--num_gpus", "1", "train.py"], "deepspeed", "--no_ssh"),
        (["deepspeed", "--hostfile", "/data/hosts", "train.py"], "deepspeed", "--no_ssh"),
        (["fabric", "run", "--node-rank", "0", "train.py"], "fabric run", "--node-rank"),
    ],
)
def test_launchers_that_read_no_variables_are_refused(
    command: list[str], launcher: str, option: str
) -> None:
    """In a run of several pods, a launcher that does not read the variables of the pods is refused
    without the option that tells it of the others. The ranks of each pod would train alone.
    """
    said = refusal(given({"per": "node"}, command, **THREE))
    assert said.count("  - ") == 1
    assert (
        f"  - program.command: {launcher!r} cannot be used: without {option} and the number of the "
        "pod, it would not find the ranks of the other pods, of which the run has 3 in all. Take "
        "it out and set program.per to rank, with which each rank has the variables that torchrun "
        'sets, or give it the options in docs/programs.md, "Launchers in several pods".'
    ) in said


ENDPOINT = "torchrun --rdzv-backend=c10d --rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT train.py"


@pytest.mark.parametrize(
    "changes",
    [
        given({"per": "node"}, ["sh", "-c", ENDPOINT], **THREE),
        given({"per": "node"}, ["torchrun", "--rdzv-backend=static", "train.py"], **THREE),
        given({"per": "node"}, ["sh", "-c", "deepspeed --hostfile=h --no_ssh a.py"], **THREE),
        given({"per": "node"}, ["sh", "-c", "accelerate launch --machine-rank $R a"], **THREE),
        given({"per": "node"}, ["accelerate", "launch", "train.py"]),
        given({"per": "node"}, ["deepspeed", "train.py"]),
        given({"per": "node"}, ["torchrun", "--nnodes=3", "train.py"], **THREE),
        given({"per": "node"}, ["torchrun", "--nnodes=1:3", "train.py"], **THREE),
        given({"per": "node"}, ["torchrun", "-m", "train", "--nnodes", "1"], **THREE),
        given({"per": "node"}, ["torchrun", "--tee", "3", "a.py", "--standalone"], **THREE),
        given({"per": "node"}, ["sh", "-c", "torchrun --nnodes=$PET_NNODES a.py"], **THREE),
        given({"per": "node"}, ["composer", "--standalone", "train.py"], **THREE),
        given({"per": "node"}, ["torchrun", "--standalone", "train.py"]),
        given({"per": "node"}, ["torchrun", "train.py"]),
        given({}, ["torchrun", "train.py"], gpusPerPod=1),
        given({}, ["python", "train.py"]),
    ],
)
def test_launchers_that_work_are_taken(changes: dict[str, Any]) -> None:
    """A launcher is accepted once in each pod, and where there is one rank. Options of the program
    behind it are not torchrun's.
    """
    assert run(changes).config.has_program

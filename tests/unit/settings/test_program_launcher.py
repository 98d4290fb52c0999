"""A launcher that starts the ranks itself is refused where the program is started once per rank,
and a torchrun where its options keep it from the other pods.
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
        (["torchrun", "--master_port", "29500", "train.py"], "--master_port 29500"),
        (["python", "-m", "torch.distributed.launch", "--nnodes=1", "train.py"], "--nnodes=1"),
        (["torchrun", "--rdzv-backend=c10d", "train.py"], "--rdzv-backend=c10d"),
        (["torchrun", "--master-addr=127.0.0.1", "train.py"], "--master-addr=127.0.0.1"),
        (["torchrun", "--rdzv-endpoint=localhost:0", "a.py"], "--rdzv-endpoint=localhost:0"),
        (["sh", "-c", "torchrun --rdzv_endpoint=$A:29500 a.py"], "--rdzv_endpoint=$A:29500"),
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
        "PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT, which each pod has."
    ) in said


@pytest.mark.parametrize(
    ("command", "launcher", "option"),
    [
        (
            ["accelerate", "launch", "--mixed_precision=bf16", "train.py", "--machine_rank=1"],
            "accelerate launch",
            "--machine_rank $PET_NODE_RANK",
        ),
        (["deepspeed", "train.py"], "deepspeed", "--hostfile FILE --no_ssh --node_rank $NODE_RANK"),
        (["fabric", "run", "--devices=1", "a.py"], "fabric run", "--node-rank $NODE_RANK"),
    ],
)
def test_launcher_that_reads_no_variables_is_refused(
    command: list[str], launcher: str, option: str
) -> None:
    """In a run of several pods, `accelerate launch` and DeepSpeed's launcher are refused without
    the option that tells them of the others: each pod would train or wait alone.
    """
    said = refusal(given({"per": "node"}, command, **THREE))
    assert said.count("  - ") == 1
    assert (
        f"  - program.command: {launcher!r} cannot be used: it would not find the ranks of the "
        "other pods, of which the run has 3 in all, as it does not read their variables. Leave it "
        "out and set program.per to rank, or give it its options for several machines in a line "
        f'for a shell, such as {option} (docs/programs.md, "Launchers in several pods").'
    ) in said


@pytest.mark.parametrize(
    "changes",
    [
        given({"per": "node"}, ["torchrun", "--nnodes=3", "train.py"], **THREE),
        given({"per": "node"}, ["torchrun", "--nnodes=1:3", "train.py"], **THREE),
        given({"per": "node"}, ["torchrun", "-m", "train", "--nnodes", "1"], **THREE),
        given({"per": "node"}, ["torchrun", "--tee", "3", "a.py", "--standalone"], **THREE),
        given({"per": "node"}, ["sh", "-c", "torchrun --nnodes=$PET_NNODES a.py"], **THREE),
        given({"per": "node"}, ["sh", "-c", "torchrun --rdzv-endpoint=$A:29400 a.py"], **THREE),
        given({"per": "node"}, ["torchrun", "--rdzv-endpoint=etcd.svc:2379", "a.py"], **THREE),
        given({"per": "node"}, ["torchrun", "--master-port=12345", "a.py"], **THREE),
        given({"per": "node"}, ["torchrun", "--rdzv-backend=static", "a.py"], **THREE),
        given({"per": "node"}, ["composer", "--standalone", "a.py"], **THREE),
        given({"per": "node"}, ["accelerate", "launch", "--machine_rank", "0", "a.py"], **THREE),
        given({"per": "node"}, ["sh", "-c", "accelerate launch $OPTIONS train.py"], **THREE),
        given({"per": "node"}, ["accelerate", "launch", "train.py"]),
        given({"per": "node"}, ["deepspeed", "--hostfile", "/tmp/hosts", "a.py"], **THREE),
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

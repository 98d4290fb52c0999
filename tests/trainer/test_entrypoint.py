"""The entrypoint of training pods: real torchrun, signals and kill -9, on loopback."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.trainer.forked import Forked
from tests.trainer.lab import (
    Lab,
    assert_bitwise_equal,
    checkpoints,
    free_port,
    last_step,
    losses,
    processes_below,
    records,
    wait_for,
)
from trainer import checkpoint
from trainer.config import ConfigError, RunConfig
from trainer.entrypoint import Node, judge, node_from_environment
from trainer.exit_codes import ExitCode
from trainer.status_files import Ending

LONG = {"train__max_steps": 160, "checkpoint__interval": 10}
# Does not end before the test has done what it wants to, however busy the machine is.
ENDLESS = {"train__max_steps": 100_000, "train__decay_steps": 200, "checkpoint__interval": 10}


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def newest(run: RunConfig) -> int:
    return checkpoint.latest_verified(checkpoints(run), lambda line: pytest.fail(line)) or 0


def kill_entrypoint(process: Forked) -> None:
    process.kill()


def kill_tree(process: Forked) -> None:
    """What the end of a pod is."""
    for pid in processes_below(process.pid):
        os.kill(pid, signal.SIGKILL)


def kill_rank(process: Forked) -> None:
    """Only the training process, the last one of entrypoint -> torchrun -> rank."""
    os.kill(processes_below(process.pid)[-1], signal.SIGKILL)


def assert_stopped_and_as_if_uninterrupted(
    lab: Lab, run: RunConfig, nodes: Sequence[Forked], settings: Mapping[str, Any]
) -> None:
    """Stop the run by SIGTERM, which loses no step, and compare it with a run to that step."""
    for node in nodes:
        node.terminate()
    assert [node.wait(timeout=30) for node in nodes] == [ExitCode.PREEMPTED] * len(nodes)
    assert newest(run) == last_step(run)
    steps = {**settings, "train__max_steps": last_step(run)}
    whole = lab.config(run_name="uninterrupted", **steps)
    lab.train(whole, 2)
    assert_bitwise_equal(whole, run)


def test_after_each_kill_9_the_run_goes_on_and_ends_as_if_nothing_had_happened(lab: Lab) -> None:
    run, port = lab.config(run_name="killed", **LONG), free_port()
    nodes = [lab.start_entrypoint(run, node, 3, 1, port) for node in range(3)]
    for step, victim, kill in (
        (25, 1, kill_rank),
        (55, 2, kill_entrypoint),
        (85, 0, kill_tree),
    ):
        wait_for(f"step {step}", lambda step=step: last_step(run) >= step, 60, lab)
        started = processes_below(nodes[victim].pid)
        kill(nodes[victim])
        if kill is not kill_rank:
            nodes[victim].wait(timeout=10)
            wait_for(
                "the ranks of the killed entrypoint to end",
                lambda pids=started: not any(is_running(pid) for pid in pids[1:]),
                20,
                lab,
            )
            nodes[victim] = lab.start_entrypoint(run, victim, 3, 1, port)
        wait_for(
            "a start from the last checkpoint",
            lambda step=step: lab.logs().count("continuing after step") >= (step + 5) // 30,
            60,
            lab,
        )
    wait_for("the done marker", (run.run_dir / "done.json").exists, 120, lab)
    wait_for("all nodes to hold", lambda: lab.logs().count("holding until SIGTERM") == 3, 20, lab)
    assert [node.poll() for node in nodes] == [None, None, None]
    assert all((lab.ready_dir(node) / "ready").exists() for node in range(3))
    for node in nodes:
        node.terminate()
    assert [node.wait(timeout=10) for node in nodes] == [0, 0, 0]
    whole = lab.config(run_name="uninterrupted", **LONG)
    lab.train(whole, 3)
    assert_bitwise_equal(whole, run)


def test_after_6_kills_of_torchrun_the_run_is_the_uninterrupted_one(lab: Lab) -> None:
    """At random instants, in one start of the entrypoint: it starts torchrun again each time."""
    draw = random.Random("torchrun")
    settings = {**ENDLESS, "model__dropout": 0.1}
    run = lab.config(run_name="killed", **settings)
    entrypoint = lab.start_entrypoint(run, 0, 1, 2, free_port())

    def wait_for_start(number: int) -> None:
        starts = "starting at step|continuing after"
        has_started = lambda: len(re.findall(starts, lab.logs())) >= number  # noqa: E731
        wait_for(f"start {number}", has_started, 90, lab)
        wait_for(f"a step of start {number}", (lab.ready_dir(0) / "ready").exists, 60, lab)

    for kill in range(6):
        wait_for_start(kill + 1)
        target = newest(run) + draw.randint(11, 25)  # past a checkpoint: that counts as progress
        wait_for(f"step {target}", lambda t=target: last_step(run) >= t, 60, lab, 0.002)
        time.sleep(draw.uniform(0, 0.05))
        torchrun, *ranks = processes_below(entrypoint.pid)[1:]
        os.kill(torchrun, signal.SIGKILL)
        wait_for(
            "the ranks of the killed torchrun to end",
            lambda pids=ranks: not any(is_running(pid) for pid in pids),
            20,
            lab,
        )
        assert newest(run) >= last_step(run) - 10
    wait_for_start(7)
    assert_stopped_and_as_if_uninterrupted(lab, run, [entrypoint], settings)


@pytest.mark.parametrize("nnodes", [1, 2])
def test_sigterm_to_one_node_loses_no_step(lab: Lab, nnodes: int) -> None:
    run, port = lab.config(**ENDLESS), free_port()
    local_ranks = 2 // nnodes
    nodes = [lab.start_entrypoint(run, node, nnodes, local_ranks, port) for node in range(nnodes)]
    wait_for("20 steps", lambda: last_step(run) >= 20, 60, lab)
    nodes[-1].terminate()
    assert nodes[-1].wait(timeout=20) == ExitCode.PREEMPTED, lab.logs()
    trained = newest(run)
    nodes[-1] = lab.start_entrypoint(run, nnodes - 1, nnodes, local_ranks, port)
    wait_for("the next start", lambda: last_step(run) > trained, 60, lab)
    assert f"continuing after step {trained} " in lab.logs()
    assert_stopped_and_as_if_uninterrupted(lab, run, nodes, ENDLESS)


def test_a_single_pod_ends_with_0_and_does_not_train_twice(lab: Lab) -> None:
    run = lab.config(train__max_steps=5)
    assert lab.execute_entrypoint(run, 0, 1, 2, free_port()).wait(timeout=60) == 0, lab.logs()
    assert (lab.ready_dir(0) / "ready").exists()
    assert [record["world_size"] for record in records(run)] == [2] * 5
    before = losses(run)
    assert lab.start_entrypoint(run, 0, 1, 2, free_port()).wait(timeout=60) == 0
    assert losses(run) == before
    assert lab.logs().count("torchrun with") == 1
    more = lab.config(train__max_steps=7)
    assert lab.start_entrypoint(more, 0, 1, 2, free_port()).wait(timeout=60) == 0
    assert json.loads((more.run_dir / "done.json").read_text())["step"] == 7
    assert last_step(more) == 7


def test_a_lost_rank_takes_readiness_away_and_uses_up_a_restart(lab: Lab) -> None:
    run = lab.config(train__max_restarts=1, train__max_steps=100_000, log__interval=50)
    node = lab.start_entrypoint(run, 0, 1, 2, free_port())
    ready = lab.ready_dir(0) / "ready"
    for start in (1, 2):
        wait_for(f"both ranks of start {start} to step", ready.exists, 60, lab)
        os.kill(processes_below(node.pid)[-1], signal.SIGKILL)
        wait_for("no readiness after the loss", lambda: not ready.exists(), 20, lab)
    assert node.wait(timeout=20) == ExitCode.RETRYABLE
    assert "2 starts in a row failed without a newer checkpoint" in lab.logs()


def test_a_fatal_failure_of_one_node_ends_all_with_its_reason_last(lab: Lab) -> None:
    run, port = lab.config(), free_port()
    (run.dataset_dir / "val.bin").write_bytes(b"xx")
    nodes = [lab.start_entrypoint(run, node, 2, 1, port) for node in range(2)]
    assert [node.wait(timeout=60) for node in nodes] == [ExitCode.FATAL] * 2, lab.logs()
    for node in range(2):
        last_line = (lab.root / f"node-{node}.log").read_text().strip().splitlines()[-1]
        assert f"[node {node}] fatal: " in last_line
        assert "val.bin has 2 bytes" in last_line


def test_a_node_whose_peers_never_come_gives_up_and_says_who_is_missing(lab: Lab) -> None:
    run = lab.config(train__rendezvous_timeout_seconds=5)
    node = lab.start_entrypoint(run, 0, 3, 1, free_port())
    assert node.wait(timeout=30) == ExitCode.RETRYABLE
    assert "gave up after 5 s: waiting for node(s) 1, 2 to join" in lab.logs()


@pytest.mark.parametrize(
    ("environment", "node"),
    [
        ({}, Node(1, 1, 0, "127.0.0.1", 29500)),
        ({"PET_NNODES": "1", "PET_NPROC_PER_NODE": "3", "POD_NAME": "train-singlepod-x7x2z"},
         Node(1, 3, 0, "127.0.0.1", 29500)),
        ({"PET_NNODES": "3", "PET_MASTER_ADDR": "a-0.b", "PET_MASTER_PORT": "1", "POD_NAME": "a-2"},
         Node(3, 1, 2, "a-0.b", 1)),
        ({"PET_NNODES": "3", "PET_MASTER_ADDR": "a", "PET_NODE_RANK": "1", "POD_NAME": "a-2"},
         Node(3, 1, 1, "a", 29500)),
    ],
)  # fmt: skip
def test_the_node_is_read_from_the_variables_of_torchrun(
    environment: Mapping[str, str], node: Node
) -> None:
    assert node_from_environment(environment) == node


def test_every_wrong_variable_is_reported() -> None:
    with pytest.raises(ConfigError) as caught:
        node_from_environment({"PET_NNODES": "2", "PET_NPROC_PER_NODE": "0", "POD_NAME": "x"})
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "PET_NPROC_PER_NODE",
        "PET_MASTER_ADDR",
        "PET_NODE_RANK",
    ]
    with pytest.raises(ConfigError, match="PET_NODE_RANK: 3 is not allowed; allowed: 0 to 2"):
        node_from_environment({"PET_NNODES": "3", "PET_MASTER_ADDR": "a", "POD_NAME": "a-3"})


DONE = Ending(ExitCode.DONE, "done")
PREEMPTED = Ending(ExitCode.PREEMPTED, "preempted")
LOST = Ending(ExitCode.RETRYABLE, "peer lost")
FATAL = Ending(ExitCode.FATAL, "no disk")


@pytest.mark.parametrize(
    ("endings", "code"),
    [
        ([DONE, DONE], ExitCode.DONE),
        ([DONE, None], ExitCode.RETRYABLE),
        ([LOST, FATAL], ExitCode.FATAL),
        ([None, FATAL], ExitCode.FATAL),
        ([PREEMPTED, PREEMPTED], ExitCode.PREEMPTED),
        ([PREEMPTED, None], ExitCode.RETRYABLE),
        ([LOST, PREEMPTED], ExitCode.RETRYABLE),
    ],
)
def test_the_worst_ending_of_a_rank_is_that_of_the_node(
    endings: list[Ending | None], code: ExitCode
) -> None:
    assert judge(endings, 1).code == code

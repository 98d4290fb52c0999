"""The entrypoint of training pods, with real ranks on loopback that get signals and kill -9."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.accidents import Accident
from tests.trainer.forked import Forked
from tests.trainer.lab import (
    Lab,
    assert_bitwise_equal,
    checkpoints,
    free_port,
    last_step,
    losses,
    newest,
    records,
    wait_for,
)
from tests.trainer.launch.kills import ENDLESS, kill_entrypoint, kill_tree
from tests.trainer.process_tree import is_running, processes_below, ranks_below
from trainer.checkpoint import store
from trainer.checkpoint.durable import write_text
from trainer.config import ConfigError, RunConfig
from trainer.launch.exit_codes import ExitCode
from trainer.launch.node import Node, node_from_environment
from trainer.launch.own_trainer import combine_exit_reports
from trainer.launch.run_log import log_path
from trainer.launch.status_files import ExitReport, StatusFiles
from trainer.watch.beat import Phase, read_beat

LIMIT_SECONDS = 60  # the longest wait for what has to happen, on a busy machine too
LONG = {"train__max_steps": 160, "checkpoint__interval": 10}


def newest_name(run: RunConfig) -> int:
    """Return the step of the newest checkpoint by its name. While a run trains, `newest` could read
    a checkpoint that the run is removing as an old one.
    """
    return max(store.all_steps(checkpoints(run)), default=0)


def kill_rank(process: Forked) -> None:
    """Kill only the last training process that the entrypoint has started."""
    os.kill(ranks_below(process.pid)[-1], signal.SIGKILL)


def assert_stopped_and_as_if_uninterrupted(
    lab: Lab, run: RunConfig, nodes: Sequence[Forked], settings: Mapping[str, Any]
) -> None:
    """Stop the run by SIGTERM, assert that no step is lost, and compare it bit by bit with an
    uninterrupted run to the same step.
    """
    for node in nodes:
        node.terminate()
    assert [node.wait(timeout=LIMIT_SECONDS) for node in nodes] == [ExitCode.PREEMPTED] * len(nodes)
    assert newest(run) == last_step(run)
    steps = {**settings, "train__max_steps": last_step(run)}
    whole = lab.config(run_name="uninterrupted", **steps)
    lab.train(whole, 2)
    assert_bitwise_equal(whole, run)


@pytest.mark.slow
def test_after_each_kill_9_the_run_goes_on_and_ends_as_if_nothing_had_happened(lab: Lab) -> None:
    """A run whose rank, entrypoint and whole pod are killed by SIGKILL goes on after each kill, and
    ends bit by bit as a run that nobody has disturbed.
    """
    run, port = lab.config(run_name="killed", **LONG, train__timeout_seconds=600), free_port()
    # Rank 0 makes so many steps and no further ones, however late a kill comes. Otherwise the run
    # could be at its last step before the last kill. The other ranks wait for rank 0.
    held = Accident("held at a step", 0, str(lab.root / "held"))
    write_text(Path(held.switch), "0")

    def start(node: int) -> Forked:
        return lab.start_entrypoint(run, node, 3, 1, port, accidents=[held])

    nodes = [start(node) for node in range(3)]
    for step, victim, kill in (
        (25, 1, kill_rank),
        (55, 2, kill_entrypoint),
        (85, 0, kill_tree),
    ):
        write_text(Path(held.switch), str(step + 20))
        wait_for(f"step {step}", lambda step=step: last_step(run) >= step, 120, lab, 0.002)
        started = processes_below(nodes[victim].pid)
        kill(nodes[victim])
        if kill is not kill_rank:
            nodes[victim].wait(timeout=LIMIT_SECONDS)
            wait_for(
                "the ranks of the killed entrypoint to end",
                lambda pids=started: not any(is_running(pid) for pid in pids[1:]),
                LIMIT_SECONDS,
                lab,
            )
            nodes[victim] = start(victim)
        wait_for(
            "a start from the last checkpoint",
            lambda step=step: lab.logs().count("continuing after step") >= (step + 5) // 30,
            LIMIT_SECONDS,
            lab,
        )
    held.end()
    wait_for("the done marker", (run.run_dir / "done.json").exists, 120, lab)
    holding = lambda: lab.logs().count("holding until SIGTERM") == 3  # noqa: E731
    wait_for("all nodes to hold", holding, LIMIT_SECONDS, lab)
    assert [node.poll() for node in nodes] == [None, None, None]
    assert all((lab.ready_dir(node) / "ready").exists() for node in range(3))
    for node in nodes:
        node.terminate()
    assert [node.wait(timeout=LIMIT_SECONDS) for node in nodes] == [0, 0, 0]
    whole = lab.config(run_name="uninterrupted", **LONG)
    lab.train(whole, 3)
    assert_bitwise_equal(whole, run)


def test_after_6_kills_of_a_rank_the_run_is_the_uninterrupted_one(lab: Lab) -> None:
    """An entrypoint starts its ranks again after each of 6 kills at random instants, and the run
    ends bit by bit as a run that nobody has disturbed.
    """
    draw = random.Random("ranks")
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
        target = last_step(run) + draw.randint(11, 25)  # past a checkpoint: that counts as progress
        wait_for(f"step {target}", lambda t=target: last_step(run) >= t, 120, lab, 0.002)
        time.sleep(draw.uniform(0, 0.05))
        ranks = ranks_below(entrypoint.pid)
        os.kill(draw.choice(ranks), signal.SIGKILL)
        wait_for(
            "the other rank to end",
            lambda pids=ranks: not any(is_running(pid) for pid in pids),
            LIMIT_SECONDS,
            lab,
        )
        trained = last_step(run)  # read first, as the next start may train already
        assert newest_name(run) >= trained - 10
    wait_for_start(7)
    assert_stopped_and_as_if_uninterrupted(lab, run, [entrypoint], settings)


@pytest.mark.parametrize("nnodes", [1, 2])
def test_sigterm_to_one_node_loses_no_step(lab: Lab, nnodes: int) -> None:
    """SIGTERM to one node makes all ranks save, and the next start goes on at the same step."""
    run, port = lab.config(**ENDLESS), free_port()
    local_ranks = 2 // nnodes
    nodes = [lab.start_entrypoint(run, node, nnodes, local_ranks, port) for node in range(nnodes)]
    wait_for("20 steps", lambda: last_step(run) >= 20, 60, lab)
    nodes[-1].terminate()
    assert nodes[-1].wait(timeout=LIMIT_SECONDS) == ExitCode.PREEMPTED, lab.logs()
    trained = newest(run)
    nodes[-1] = lab.start_entrypoint(run, nnodes - 1, nnodes, local_ranks, port)
    wait_for("the next start", lambda: last_step(run) > trained, 60, lab)
    assert "stopped by a signal; the next start continues from the last checkpoint" in lab.logs()
    # The records are written by the rank, and its lines are passed on by the entrypoint.
    goes_on = f"continuing after step {trained} "
    wait_for("the line of the next start", lambda: goes_on in lab.logs(), LIMIT_SECONDS, lab)
    assert_stopped_and_as_if_uninterrupted(lab, run, nodes, ENDLESS)


def test_pod_evicted_before_first_step_costs_nothing(lab: Lab) -> None:
    """The eviction of a pod before the first step is not counted as a restart. The ranks of that
    pod end at once, and the other node hears why before its own ranks fail. The pod says that there
    is no checkpoint yet.
    """
    accident = Accident("slow forward", 1, str(lab.root / "slow"), LIMIT_SECONDS)
    accident.begin()
    run = lab.config(train__max_restarts=0, train__spare_processes=False)
    port = free_port()

    def start(node: int) -> Forked:
        return lab.start_entrypoint(run, node, 2, 1, port, accidents=[accident])

    nodes = [start(node) for node in range(2)]

    def computes() -> bool:
        seen = read_beat(StatusFiles(lab.ready_dir(1)).beat_file(0))
        return seen is not None and seen.phase == Phase.PASSES

    wait_for("the pass before the first step", computes, LIMIT_SECONDS, lab)
    nodes[1].terminate()
    assert nodes[1].wait(timeout=LIMIT_SECONDS) == ExitCode.PREEMPTED, lab.logs()
    assert "[node 1] stopped by a signal; the volume has no checkpoint yet\n" in lab.logs()
    accident.end()
    nodes[1] = start(1)
    wait_for("the done marker", (run.run_dir / "done.json").exists, LIMIT_SECONDS, lab)
    said = lab.logs()
    assert "round 1 is lost: node 1: asked to stop before its first step" in said
    assert "restart 1 of" not in said
    assert "was ended by SIGTERM" not in said


@pytest.mark.in_depth
def test_a_stop_may_take_longer_than_half_a_minute(lab: Lab) -> None:
    """Ranks that are asked to stop may take longer than 30 s to save. Otherwise the last save of a
    large model would be cut off each time.
    """
    run = lab.config(**{**ENDLESS, "checkpoint__interval": 0})
    node = lab.start_entrypoint(run, 0, 1, 2, free_port(), slow_disk_seconds=7)  # in five fsyncs
    wait_for("20 steps", lambda: last_step(run) >= 20, 60, lab)
    node.terminate()
    assert node.wait(timeout=90) == ExitCode.PREEMPTED, lab.logs()
    assert newest(run) == last_step(run) > 0


@pytest.mark.slow
def test_a_lost_node_does_not_cut_off_a_save(lab: Lab, tmp_path: Path) -> None:
    """Rank 0 finishes a checkpoint that it is writing although another node was lost. The lost node
    is not needed any more once all ranks have written their parts. Without such a save, the ranks
    would be killed after 2 s.
    """
    accident = Accident("hanging commit", 0, str(tmp_path / "hangs"))
    run, port = lab.config(**{**ENDLESS, "checkpoint__interval": 20}), free_port()
    accident.begin()
    nodes = [lab.start_entrypoint(run, node, 2, 1, port, accidents=[accident]) for node in range(2)]
    wait_for("a save", lambda: (lab.ready_dir(0) / "saving-0").exists(), 60, lab)
    kill_tree(nodes[1])
    words = "a checkpoint is being written: waiting for its end"
    wait_for("the wait for the save", lambda: words in lab.logs(), 120, lab)
    assert newest_name(run) == 0
    accident.end()
    wait_for("the end of the save", lambda: newest_name(run) > 0, 120, lab)
    nodes[0].terminate()
    assert nodes[0].wait(timeout=90) == ExitCode.PREEMPTED, lab.logs()


def test_a_frozen_rank_is_killed_when_its_node_is_told_to_stop(lab: Lab) -> None:
    """A rank that cannot run its signal handler is killed when its node is told to stop. Here it is
    frozen by SIGSTOP, which stands in for a rank that waits for a dead collective on a GPU.
    """
    run, port = lab.config(**{**ENDLESS, "train__timeout_seconds": 300}), free_port()
    nodes = [lab.start_entrypoint(run, node, 2, 1, port) for node in range(2)]
    wait_for("20 steps", lambda: last_step(run) >= 20, 60, lab)
    frozen = ranks_below(nodes[0].pid)[-1]
    os.kill(frozen, signal.SIGSTOP)
    kill_rank(nodes[1])
    wait_for("the frozen rank to be killed", lambda: not is_running(frozen), 60, lab)
    for node in nodes:
        node.terminate()
    assert [node.wait(timeout=LIMIT_SECONDS) for node in nodes] == [ExitCode.PREEMPTED] * 2, (
        lab.logs()
    )


def test_nodes_with_the_key_of_the_run_train_together(lab: Lab) -> None:
    """A pod without the run's key stays outside, and is told so. The key is in no log."""
    # Node 0 must not give up while it waits for the node that has the key.
    run, port = lab.config(train__max_steps=5, train__rendezvous_timeout_seconds=600), free_port()
    key = {"DISTTRAIN_RUN_KEY": "secret-of-this-run"}
    stranger = lab.start_entrypoint(run, 1, 2, 1, port, environment={"POD_NAME": "x-1"})
    zero = lab.start_entrypoint(run, 0, 2, 1, port, environment=key)
    wait_for("the refusal", lambda: "DISTTRAIN_RUN_KEY differs" in lab.logs(), 60, lab)
    stranger.terminate()
    assert stranger.wait(timeout=LIMIT_SECONDS) == ExitCode.PREEMPTED
    one = lab.start_entrypoint(run, 1, 2, 1, port, environment=key)
    wait_for("both to hold", lambda: lab.logs().count("holding until SIGTERM") == 2, 60, lab)
    for node in (zero, one):
        node.terminate()
    assert [node.wait(timeout=LIMIT_SECONDS) for node in (zero, one)] == [0, 0]
    assert "secret-of-this-run" not in lab.logs()


def test_nodes_meet_before_the_name_of_node_0_is_known(lab: Lab) -> None:
    """Nodes, node 0 among them, meet by the address that node 0 leaves on the volume, even if the
    name of node 0 does not resolve. The DNS servers of a cluster may answer for half a minute with
    the address of the pod before it, or that there is no such name.
    """
    run, port = lab.config(train__max_steps=5), free_port()
    unknown = {"PET_MASTER_ADDR": "nobody.invalid", "DISTTRAIN_POD_IP": "127.0.0.1"}
    one = lab.start_entrypoint(run, 1, 2, 1, port, environment=unknown)
    zero = lab.start_entrypoint(run, 0, 2, 1, port, environment=unknown)
    wait_for("both to hold", lambda: lab.logs().count("holding until SIGTERM") == 2, 60, lab)
    for node in (zero, one):
        node.terminate()
    assert [node.wait(timeout=LIMIT_SECONDS) for node in (zero, one)] == [0, 0]
    assert [record["world_size"] for record in records(run)] == [2] * 5
    assert not (run.run_dir / ".node-0-address").exists()


def test_a_single_pod_ends_with_0_and_does_not_train_twice(lab: Lab) -> None:
    """A run in a single pod ends with exit code 0 and an account of its goodput. When it is started
    again it trains nothing, unless it has got more steps to do.
    """
    run = lab.config(train__max_steps=5)
    assert lab.execute_entrypoint(run, 0, 1, 2, free_port()).wait(timeout=300) == 0, lab.logs()
    assert (lab.ready_dir(0) / "ready").exists()
    assert [record["world_size"] for record in records(run)] == [2] * 5
    before = losses(run)
    assert lab.start_entrypoint(run, 0, 1, 2, free_port()).wait(timeout=60) == 0
    assert losses(run) == before
    assert lab.logs().count("] round 1: ") == 1
    lines = lab.logs().splitlines()
    end = next(number for number, line in enumerate(lines) if "is finished: step 5" in line)
    account = r"\[node 0\] goodput \d+\.\d% of .*: 0 restarts, 0 steps made again"
    assert re.search(account, lines[end - 1]), lines
    more = lab.config(train__max_steps=7)
    assert lab.start_entrypoint(more, 0, 1, 2, free_port()).wait(timeout=60) == 0
    assert json.loads((more.run_dir / "done.json").read_text())["step"] == 7
    assert last_step(more) == 7


def test_a_lost_rank_takes_readiness_away_and_uses_up_a_restart(lab: Lab) -> None:
    # Only the kills may end a start: on a busy machine it can take longer than the usual limits.
    """A lost rank makes its pod not ready and uses up a restart. When no restart is left, the node
    ends with the reason, and the run's log has the lines of the container's log.
    """
    limits = {"train__timeout_seconds": 600, "train__start_timeout_seconds": 600}
    run = lab.config(train__max_restarts=1, train__max_steps=100_000, log__interval=50, **limits)
    node = lab.start_entrypoint(run, 0, 1, 2, free_port())
    ready = lab.ready_dir(0) / "ready"

    def made_at() -> int | None:
        try:
            return ready.stat().st_ctime_ns
        except FileNotFoundError:
            return None

    for start in (1, 2):
        wait_for(f"both ranks of start {start} to step", ready.exists, 300, lab)
        made = made_at()
        os.kill(ranks_below(node.pid)[-1], signal.SIGKILL)
        # Where the next start is fast, the file is there again before this looks.
        wait_for("no readiness after the loss", lambda made=made: made_at() != made, 300, lab)
    assert node.wait(timeout=300) == ExitCode.RETRYABLE
    assert "2 starts in a row failed without a newer checkpoint" in lab.logs()
    counted = "starting again at once (restart 1 of 1 without a newer checkpoint)"
    assert lab.logs().count(counted) == 1
    assert len(re.findall(r"\[node 0\] rank [01] was killed by SIGKILL", lab.logs())) == 2
    kept = [line.split(" ", 3) for line in log_path(run.run_dir, 0).read_text().splitlines()]
    # At its end the entrypoint waits only briefly for the disk, so the last lines may be missing.
    shown = lab.node_log(0).read_text().splitlines()
    assert [line[3] for line in kept] == shown[: len(kept)]
    assert {line[2] for line in kept} >= {"-", "0"}


def test_a_fatal_failure_of_one_node_ends_all_with_its_reason_last(lab: Lab) -> None:
    """A fatal failure of one node ends all nodes, and the last line of each log gives the
    reason.
    """
    run, port = lab.config(), free_port()
    (run.dataset_dir / "val.bin").write_bytes(b"xx")
    nodes = [lab.start_entrypoint(run, node, 2, 1, port) for node in range(2)]
    assert [node.wait(timeout=60) for node in nodes] == [ExitCode.FATAL] * 2, lab.logs()
    for node in range(2):
        last_line = (lab.root / f"node-{node}.log").read_text().strip().splitlines()[-1]
        assert f"[node {node}] fatal: " in last_line
        assert "val.bin has 2 bytes" in last_line


def test_reason_that_all_ranks_have_is_printed_once(lab: Lab) -> None:
    """All ranks find the same wrong data. One of them says so, and then the node does, instead of
    each of eight ranks.
    """
    run = lab.config()
    (run.dataset_dir / "val.bin").write_bytes(b"xx")
    node = lab.start_entrypoint(run, 0, 1, 3, free_port())
    assert node.wait(timeout=LIMIT_SECONDS) == ExitCode.FATAL
    said = [line for line in lab.logs().splitlines() if "val.bin has 2 bytes" in line]
    assert len(said) == 2
    assert re.match(r"rank \d: ", said[0])
    assert said[1].startswith("[node 0] fatal: ")


def test_run_of_another_kind_is_told(lab: Lab) -> None:
    """A run whose folder has the finished run of a user's own program fails for good. Its last line
    has the word `fatal: ` before the reason, by which `./disttrain status` finds it.
    """
    run = lab.config()
    run.run_dir.mkdir(parents=True)
    (run.run_dir / "done.json").write_text('{"program": "x", "step": 5, "loss": null}')
    node = lab.start_entrypoint(run, 0, 1, 1, free_port())
    assert node.wait(timeout=LIMIT_SECONDS) == ExitCode.FATAL
    last_line = lab.node_log(0).read_text().strip().splitlines()[-1]
    assert "[node 0] fatal: " in last_line
    assert "has a finished run of another kind" in last_line


def test_a_node_whose_peers_never_come_gives_up_and_says_who_is_missing(lab: Lab) -> None:
    run = lab.config(train__rendezvous_timeout_seconds=5)
    node = lab.start_entrypoint(run, 0, 3, 1, free_port())
    assert node.wait(timeout=LIMIT_SECONDS) == ExitCode.RETRYABLE
    assert "gave up after 5 s: waiting for node(s) 1, 2 to join" in lab.logs()


@pytest.mark.parametrize(
    ("environment", "node"),
    [
        ({}, Node(1, 1, 0, "127.0.0.1", 29500)),
        ({"PET_NNODES": "1", "PET_NPROC_PER_NODE": "3", "POD_NAME": "train-singlepod-x7x2z"},
         Node(1, 3, 0, "127.0.0.1", 29500)),
        ({"PET_NNODES": "1", "POD_NAME": "a-0", "DISTTRAIN_POD_STAYS": "1"},
         Node(1, 1, 0, "127.0.0.1", 29500, True)),
        ({"PET_NNODES": "13", "PET_MASTER_ADDR": "a-0.a", "POD_NAME": "a-0-12"},
         Node(13, 1, 12, "a-0.a", 29500, True)),
        ({"PET_NNODES": "3", "PET_MASTER_ADDR": "a-0.b", "PET_MASTER_PORT": "1", "POD_NAME": "a-2"},
         Node(3, 1, 2, "a-0.b", 1, True)),
        ({"PET_NNODES": "3", "PET_MASTER_ADDR": "a", "PET_NODE_RANK": "1", "POD_NAME": "a-2"},
         Node(3, 1, 1, "a", 29500, True)),
        ({"PET_NNODES": "3", "PET_MASTER_ADDR": "a", "JOB_COMPLETION_INDEX": "1", "POD_NAME": "x"},
         Node(3, 1, 1, "a", 29500, False)),
    ],
)  # fmt: skip
def test_the_node_is_read_from_the_variables_of_torchrun(
    environment: Mapping[str, str], node: Node
) -> None:
    """The number of nodes, this node's rank and the address of node 0 are read from the variables
    that torchrun has, too. The pods of a StatefulSet stay after the run; those of an Indexed Job
    leave, or they would hold their GPUs for ever.
    """
    assert node_from_environment(environment) == node


def test_every_wrong_variable_is_reported() -> None:
    """All variables that are missing or wrong are named in one error."""
    with pytest.raises(ConfigError) as caught:
        node_from_environment({"PET_NNODES": "2", "PET_NPROC_PER_NODE": "0", "POD_NAME": "x"})
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "PET_NPROC_PER_NODE",
        "PET_MASTER_ADDR",
        "PET_NODE_RANK",
    ]
    with pytest.raises(ConfigError, match=r"PET_NODE_RANK: 3 cannot be used: .* Set 0 to 2\."):
        node_from_environment({"PET_NNODES": "3", "PET_MASTER_ADDR": "a", "POD_NAME": "a-3"})


DONE = ExitReport(ExitCode.DONE, "done")
PREEMPTED = ExitReport(ExitCode.PREEMPTED, "preempted")
LOST = ExitReport(ExitCode.RETRYABLE, "peer lost")
FATAL = ExitReport(ExitCode.FATAL, "no disk")


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
    endings: list[ExitReport | None], code: ExitCode
) -> None:
    """The exit code of a node is that of the rank that ended worst, and a rank that reported
    nothing counts as one that failed.
    """
    assert combine_exit_reports(endings, [1] * len(endings)).code == code


def test_rank_that_reported_first_is_the_reason(tmp_path: Path) -> None:
    """The rank that reported its end first gives the reason of the node. It has the error, while
    the others report a moment later that they have lost it.
    """
    status = StatusFiles(tmp_path)
    causes = {2: "ValueError: a batch", 0: "Connection reset", 1: "Connection closed"}
    for number, (rank, reason) in enumerate(causes.items()):
        status.report_exit(rank, ExitReport(ExitCode.RETRYABLE, reason))
        os.utime(tmp_path / f"exit-{rank}", (1000 + number, 1000 + number))
    order = status.exit_order(4)
    assert order == [2, 0, 1, 3]
    found = combine_exit_reports(status.exit_reports(4)[:3], [75] * 3, order[:3])
    assert found.reason == "ValueError: a batch"


@pytest.mark.parametrize(
    ("code", "gone", "reason"),
    [
        (
            7,
            [1],
            "local rank 1 ended with exit status 7 and gave no reason",
        ),  # a library has ended it
        (-9, [1], "local rank 1 was killed by SIGKILL: by the kernel for lack of memory, or by"),
        (-6, [1], "lost"),  # NCCL ends a rank by SIGABRT when it has lost another one
        (-9, [], "lost"),  # by the entrypoint, when the other had failed
    ],
)
def test_rank_that_says_nothing_is_the_reason(code: int, gone: list[int], reason: str) -> None:
    """A rank that ended by itself without a report is the reason of its node. Otherwise `status`
    would show as the cause that the other ranks have lost it.
    """
    lost, codes = ExitReport(ExitCode.RETRYABLE, "lost"), [75, code]
    found = combine_exit_reports([lost, None], codes, gone=gone)
    assert found.code == ExitCode.RETRYABLE
    assert found.reason.startswith(reason)
    fatal = ExitReport(ExitCode.FATAL, "no room")
    assert combine_exit_reports([fatal, None], codes, gone=gone) == fatal

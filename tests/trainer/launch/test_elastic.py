"""`train.nodes_min`: training with some of the nodes, over real sockets and in real processes."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.trainer.forked import Forked
from tests.trainer.lab import Lab, free_port, last_step, losses, records, wait_for
from tests.trainer.launch.gang import FAILED, LIMIT_SECONDS, Clock, Gang, hello, lost
from tests.trainer.launch.kills import ENDLESS, kill_entrypoint, kill_tree
from trainer.config import RunConfig
from trainer.launch.exit_codes import ExitCode
from trainer.launch.gathering import RoundRules
from trainer.launch.status_files import ExitReport

SAVED = ExitReport(ExitCode.PREEMPTED, "stopped by a signal, saved at step 7")


@pytest.fixture
def gang(request: pytest.FixtureRequest) -> Iterator[Gang]:
    """Yield a gang of three nodes of which two are enough, and which waits `request.param` seconds
    for the third one.
    """
    gang = Gang(RoundRules(3, nodes_min=2, wait_seconds=request.param, return_seconds=0))
    yield gang
    gang.close()


@pytest.mark.parametrize("gang", [0.5], indirect=True)
def test_a_node_that_comes_late_is_taken_into_the_next_round(gang: Gang, clock: Clock) -> None:
    """When a late node appears, the nodes that train are asked to save and form a round with it.
    Their end on request is no failure of the round. While they train, the late node does not give
    up, however long that takes.
    """
    members = gang.join_all(hello(0), hello(2))
    assert [member.round.nodes for member in members] == [(0, 2), (0, 2)]
    assert [member.round.first_rank for member in members] == [0, 1]
    late = gang.join_later(1)
    gang.wait_until_said("the other nodes train without this one")
    clock.turn()
    assert [member.poll_lost() for member in members] == [None, None]
    assert [member.regroups_for for member in members] == ["", ""]
    for member in members:
        member.report_stepped()
    gang.wait_until(lambda: all(member.poll_lost() or member.regroups_for for member in members))
    assert [member.regroups_for for member in members] == ["node(s) 1 can join the others"] * 2
    members[1].leave(SAVED)
    again = gang.join_later(2)
    assert lost(members[0], seconds=1) is None
    gang.wait_until_waiting(2)  # or a round of the other two would start after half a second
    members[0].leave(SAVED)
    second = gang.join(hello(0))
    assert second is not None
    assert second.round.nodes == (0, 1, 2)
    for other in (late, again):
        member = other.result(timeout=LIMIT_SECONDS)
        assert member is not None
        assert member.round.number == 2


@pytest.mark.parametrize("gang", [60], indirect=True)
def test_a_fatal_failure_of_a_node_that_is_not_needed_ends_no_run(gang: Gang) -> None:
    """A fatal failure, such as a lost GPU, ends the run only if too few nodes are left without that
    node. Otherwise the other nodes go on without it.
    """
    members = gang.join_all(hello(0), hello(1), hello(2))
    members[2].leave(ExitReport(ExitCode.FATAL, "no GPU"))
    for member in members[:2]:
        assert lost(member) == ExitReport(ExitCode.RETRYABLE, "node 2: no GPU")
        member.leave(SAVED)
    members = gang.join_all(hello(0), hello(1))
    assert members[0].round.nodes == (0, 1)
    members[1].leave(ExitReport(ExitCode.FATAL, "no GPU"))
    assert lost(members[0]) == ExitReport(ExitCode.FATAL, "node 1: no GPU")


@pytest.mark.parametrize("gang", [60], indirect=True)
def test_the_node_that_failed_first_is_left_out(gang: Gang) -> None:
    """The node whose rank failed first is left out of the next round, even if another node has
    ended before it. A node with several ranks needs time to end them, while ranks of other nodes
    fail because of it.
    """
    members = gang.join_all(hello(0), hello(1), hello(2))
    members[2].report_failing()
    gang.wait_until(lambda: gang.coordinator._first_failing == 2)  # pyright: ignore
    members[1].report_failing()
    members[1].leave(FAILED)
    gang.wait_until_said("round 1 is lost: node 1: a rank was killed")
    members[2].leave(FAILED)
    late = gang.join_later(2)
    gang.wait_until_said("waiting for node(s) 0, 1 to join")
    members[0].leave(FAILED)
    again = gang.join_all(hello(0), hello(1))
    assert again[0].round.nodes == (0, 1)
    assert not late.done()


@pytest.mark.parametrize("gang", [60], indirect=True)
def test_node_that_failed_in_an_earlier_round_is_not_left_out(gang: Gang) -> None:
    """The node that failed first in a round is forgotten with that round. Otherwise a later failure
    of another node would leave out the wrong one.
    """
    members = gang.join_all(hello(0), hello(1), hello(2))
    members[1].report_failing()
    for member in reversed(members):
        member.leave(FAILED)
    gang.wait_until_said("node 1 ended the round soon after its start")
    again = gang.join_all(hello(0), hello(2))
    assert again[0].round.nodes == (0, 2)
    gang.join_later(1)
    gang.wait_until_waiting(1)
    again[1].leave(FAILED)
    assert lost(again[0]) is not None
    assert any("node 2 ended the round soon after its start" in line for line in gang.said)


@pytest.mark.slow
def test_a_run_goes_on_with_3_then_2_then_1_and_then_3_nodes(lab: Lab) -> None:
    """A run that loses two of its three nodes and gets them back has, at every step, the loss of an
    undisturbed run (within 1e-5).

    More rounds are lost than `train.max_restarts` allows in a row, but each has made progress, so
    the run does not give up. Node 1 is lost before node 2, so that one round has the nodes 0 and 2.
    """
    draw = random.Random("three two one")
    settings = {
        **ENDLESS,
        "train__learning_rate": 1e-3,
        "train__nodes_min": 1,
        "train__nodes_wait_seconds": 5,
        "train__nodes_return_seconds": 2,
        "train__max_restarts": 1,
    }
    run, port = lab.config(run_name="elastic", **settings), free_port()

    def start(node: int) -> Forked:
        return lab.start_entrypoint(run, node, 3, 1, port, slow_disk_seconds=0.03)

    nodes = [start(node) for node in range(3)]
    wait_until_trained_by(lab, run, 3)
    victims = draw.sample([1, 2], 2)
    assert victims == [1, 2]
    for left, victim in ((2, victims[0]), (1, victims[1])):
        target = last_step(run) + draw.randint(1, 20)
        wait_for(f"step {target}", lambda target=target: last_step(run) >= target, 60, lab, 0.002)
        draw.choice((kill_entrypoint, kill_tree))(nodes[victim])
        nodes[victim].wait(timeout=LIMIT_SECONDS)
        wait_until_trained_by(lab, run, left)
    assert nodes[0].poll() is None
    for victim in victims:
        nodes[victim] = start(victim)
    wait_until_trained_by(lab, run, 3)
    for node in nodes:
        node.terminate()
    assert [node.wait(timeout=LIMIT_SECONDS) for node in nodes] == [ExitCode.PREEMPTED] * 3, (
        lab.logs()
    )
    assert (
        "training stopped: stopped by a signal" not in lab.logs()
    )  # to take nodes back is no failure
    sizes = iter([record["world_size"] for record in records(run)])
    assert all(size in sizes for size in (3, 2, 1, 3))  # in this order
    whole = lab.config(run_name="undisturbed", **{**settings, "train__max_steps": last_step(run)})
    lab.train(whole, 3)
    assert [step for step, _, _ in losses(run)] == [step for step, _, _ in losses(whole)]
    for (_, found, _), (_, wanted, _) in zip(losses(run), losses(whole), strict=True):
        assert found == pytest.approx(wanted, abs=1e-5)


def wait_until_trained_by(lab: Lab, run: RunConfig, world_size: int) -> None:
    """Wait until the last 21 steps were made by `world_size` ranks. A checkpoint every 10 steps
    keeps some of them when the next node is lost.
    """

    def is_trained() -> bool:
        last = [record["world_size"] for record in records(run)[-21:]]
        return last == [world_size] * 21

    wait_for(f"21 steps of {world_size} rank(s)", is_trained, 300, lab)

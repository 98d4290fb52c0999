"""A network link dies while a real run trains, and the run names the node behind that link.

A dead link closes no connection. Otherwise the ranks would wait until their own time limit, and
each would then blame whichever rank it waited for, because gloo and NCCL name only that one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from cli.logs.first_error import first_error
from cli.logs.line import Line, parse_record
from tests.trainer.lab import Lab, free_port, last_step, wait_for
from tests.trainer.launch.hanging import ENDLESS, hang_event, hangs
from tests.trainer.networks import INTERFACES, Networks, networks
from trainer.config import RunConfig
from trainer.launch.run_log import log_path

PODS = 3
NO_ACKNOWLEDGEMENT = "is not acknowledged, as by a dead network card, link or switch"


@pytest.fixture
def pods(lab: Lab) -> Iterator[Networks]:
    """Yield a network for each pod. All processes of the lab are ended before the networks are
    removed.
    """
    with networks(PODS) as made:
        yield made
        lab.end_all()


def start(lab: Lab, pods: Networks, run: RunConfig, count: int) -> None:
    """Start `count` pods with one rank each, and return after their first 30 steps."""
    port = free_port()
    for node in range(count):
        environment = {
            "PET_MASTER_ADDR": pods.address(0, "eth0"),
            "GLOO_SOCKET_IFNAME": "net1",
        }
        lab.execute_entrypoint(run, node, count, 1, port, environment, wrapper=pods.inside(node))
    wait_for("30 steps", lambda: last_step(run) > 30, 300, lab)


def the_hang(lab: Lab) -> str:
    """Wait until node 0 reports a hang, and return its line, which must be the only one."""
    wait_for("the hang to be told", lambda: bool(hangs(lab)), 120, lab)
    (line,) = hangs(lab)
    return line


def lines_of(run: RunConfig, pods: int) -> list[Line]:
    """Return the lines of the run's logs in order of time, as `./disttrain logs --first-error`
    reads them.
    """
    records = [
        parse_record(record)
        for node in range(pods)
        for record in log_path(run.run_dir, node).read_bytes().splitlines()
    ]
    return sorted((line for line in records if line is not None), key=lambda line: line.at)


def test_node_whose_only_link_died_is_cut_off(lab: Lab, pods: Networks) -> None:
    """A node that has lost all its links is named as cut off, although it cannot say anything
    itself. The round ends, and the run goes on once the links are back.
    """
    run = lab.config(**ENDLESS)
    start(lab, pods, run, PODS)
    for interface in INTERFACES:
        pods.set_link(2, interface, "down")
    line = the_hang(lab)
    assert "s: node 2 is cut off from the other nodes: what is sent there" in line
    assert NO_ACKNOWLEDGEMENT in line
    assert re.search(r"; ranks 0, 1 wait for it in .* of step \d+$", line)
    event = hang_event(lab, run)
    assert (event.values["rank"], event.values["node"]) == (None, 2)
    lost = "round 1 is lost: node 2 is cut off: it acknowledges nothing any more"
    wait_for("the round to end", lambda: lost in lab.node_log(0).read_text(), 120, lab)
    cause = first_error(lines_of(run, PODS))
    assert cause is not None
    assert (cause.line.node, cause.line.rank) == (2, None)
    for interface in INTERFACES:
        pods.set_link(2, interface, "up")
    step = last_step(run)
    wait_for(
        "the next round", lambda: "] round 2: 3 node(s)" in lab.node_log(0).read_text(), 120, lab
    )
    wait_for("further steps", lambda: last_step(run) not in range(step + 10), 300, lab)


def test_rank_whose_second_link_died_is_cut_off(lab: Lab, pods: Networks) -> None:
    """A rank that has lost only the link of the ranks is named as cut off. Its node still answers
    through the other network, and reports that this rank waits like all others.
    """
    run = lab.config(**ENDLESS)
    start(lab, pods, run, PODS)
    pods.set_link(2, "net1", "down")
    line = the_hang(lab)
    assert "s: rank 2 on node 2 is cut off from the other nodes: what is sent there" in line
    assert f"(at {pods.address(2, 'net1')}) {NO_ACKNOWLEDGEMENT}" in line
    assert re.search(r"; ranks 0, 1 wait for it in .* of step \d+$", line)
    event = hang_event(lab, run)
    assert (event.values["rank"], event.values["node"]) == (2, 2)


def test_two_nodes_that_do_not_reach_each_other_are_both_named(lab: Lab, pods: Networks) -> None:
    """When the link between the only two nodes dies, both are named, because nobody can tell at
    which end the fault is.
    """
    run = lab.config(**ENDLESS)
    start(lab, pods, run, 2)
    pods.set_link(1, "net1", "down")
    line = the_hang(lab)
    assert "s: nothing arrives any more between node 0 and node 1: what they send " in line
    assert NO_ACKNOWLEDGEMENT in line
    assert "; ranks 0, 1 wait in " in line

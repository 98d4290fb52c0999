"""`pulumi destroy` while a machine is off on which the training has a pod."""

import re
from collections.abc import Iterator

import pytest

from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.lab import Lab, run_settings, wait_for
from tests.e2e.lost_node import SETTINGS, STEPS, lose_a_node, start

ON_LOST, ON_GUEST = "e2e-destroyed-lost", "e2e-destroyed-guest"

pytestmark = pytest.mark.in_depth


@pytest.fixture
def nodes(lab: Lab) -> Iterator[Lab]:
    """Yield the lab with two nodes, so that no third node can take the place of the lost one."""
    lab.cluster.up(2)
    try:
        yield lab
    finally:
        lab.cluster.up(1)


@pytest.fixture
def stack(nodes: Lab) -> Iterator[Stack]:
    made = nodes.stack("e2e-lost", "sandbox", {**run_settings(ON_LOST, STEPS), **SETTINGS})
    yield made
    made.destroy()


def test_destroy_says_what_a_lost_machine_keeps(nodes: Lab, stack: Stack) -> None:
    """`destroy` fails and names the pod that cannot end, its machine, and a command that helps.

    After that command `destroy` works, and the data are kept. Without the message `destroy` would
    wait for the claim until its limit.
    """
    start(nodes, stack, ON_LOST)
    destroy_as_the_message_says(nodes, stack)
    assert nodes.run_dir(ON_LOST).is_dir()


def destroy_as_the_message_says(nodes: Lab, stack: Stack) -> None:
    """Lose a node, try `destroy`, type the command in its message, and run `destroy` again."""
    pod, node = lose_a_node(nodes)
    with pytest.raises(PulumiFailedError) as failed:
        stack.destroy()
    said = str(failed.value)
    assert f"{pod} cannot end, because machine {node} has not answered since" in said
    command = re.search(r"`kubectl (delete pod [^`]*)`", said)
    assert command is not None
    nodes.kubectl(*command[1].split())
    stack.destroy()


def test_destroy_of_a_run_alone_says_it_too(nodes: Lab, stack: Stack) -> None:
    """`destroy` of a run on another stack's platform also names the pod that cannot end.

    Otherwise `destroy` would end well, and the pod would keep that platform's claim for ever.
    """
    stack.up()
    nodes.wait_done(ON_LOST)
    guest = nodes.stack("e2e-lost-guest", "sandbox-multipod", {"platform": "e2e-lost"})
    try:
        start(nodes, guest, ON_GUEST)
        destroy_as_the_message_says(nodes, guest)
        wait_for("its Job to go", lambda: "train-indexed" not in str(nodes.get("pods,jobs")), 60)
    finally:
        guest.destroy()


def test_destroy_ends_where_lost_nodes_are_replaced(nodes: Lab, stack: Stack) -> None:
    """With `lostNodes: replace`, `destroy` ends by itself although a machine is lost.

    The program that gives up the pods of a lost machine works until these have gone.
    """
    stack.set("lostNodes", "replace")
    start(nodes, stack, ON_LOST)
    lose_a_node(nodes)
    stack.destroy()
    assert nodes.run_dir(ON_LOST).is_dir()

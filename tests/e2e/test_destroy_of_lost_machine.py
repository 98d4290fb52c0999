"""`pulumi destroy` while a machine with a pod of the training is off."""

import re
from collections.abc import Iterator

import pytest

from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.lab import Lab, run_settings
from tests.e2e.test_several_nodes import SETTINGS, STEPS, lose_a_node, start

ON_LOST = "e2e-destroyed-lost"

pytestmark = pytest.mark.in_depth


@pytest.fixture
def nodes(lab: Lab) -> Iterator[Lab]:
    """Two nodes: a third one could take the place of the lost one, which is not the story here."""
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
    """It waited for ten minutes for the claim. The command in its message is all that it takes."""
    start(nodes, stack, ON_LOST)
    pod, node = lose_a_node(nodes)
    with pytest.raises(PulumiFailedError) as failed:
        stack.destroy()
    said = str(failed.value)
    assert f"{pod} cannot end, because machine {node} has not answered since" in said
    command = re.search(r"`kubectl (delete pod [^`]*)`", said)
    assert command is not None
    nodes.kubectl(*command[1].split())
    stack.destroy()
    assert nodes.run_dir(ON_LOST).is_dir()


def test_destroy_ends_where_lost_nodes_are_replaced(nodes: Lab, stack: Stack) -> None:
    """The program that gives up the pods of a lost machine works until they have gone."""
    stack.set("lostNodes", "replace")
    start(nodes, stack, ON_LOST)
    lose_a_node(nodes)
    stack.destroy()
    assert nodes.run_dir(ON_LOST).is_dir()

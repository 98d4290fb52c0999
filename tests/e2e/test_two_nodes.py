"""A training whose pods are on two nodes, from `pulumi up` to the loss of the same run on one.

Where a real cluster has shared storage, both nodes of the sandbox see the same folder of this
machine, so that `storage: host-path` with `shared` stands in for it. The image is brought to the
first node by `imageDelivery: import`; the second one gets it from the first, as with k3s' embedded
registry.
"""

from collections.abc import Iterator

import pytest

from sandbox.stack import Stack
from tests.e2e.lab import Lab, run_settings

STEPS = 20
ON_ONE, ON_TWO = "e2e-one-node", "e2e-two-nodes"
LOSS_TOLERANCE = 1e-5


@pytest.fixture
def two_nodes(lab: Lab) -> Iterator[Lab]:
    lab.cluster.up(2)
    try:
        yield lab
    finally:
        lab.cluster.up(1)


@pytest.fixture
def stack(two_nodes: Lab) -> Iterator[Stack]:
    settings = {
        **run_settings(ON_ONE, STEPS),
        "topology": "single-pod",
        "podCidr": "10.244.0.0/16",
        "storageOptions.shared": "true",
    }
    made = two_nodes.stack("e2e-nodes", "sandbox", settings)
    yield made
    made.destroy()


def more_than_half_a_node(lab: Lab) -> str:
    """An amount of CPU of which each node has room for one, however many cores it has."""
    cores = lab.get("nodes")["items"][0]["status"]["allocatable"]["cpu"]
    return f"{int(cores) * 1000 // 2 + 1}m"


def test_pods_of_one_training_on_two_nodes_end_with_the_loss_of_one(
    two_nodes: Lab, stack: Stack
) -> None:
    stack.up()
    two_nodes.wait_done(ON_ONE)
    wider = {
        "runName": ON_TWO,
        "topology": "indexed-job",
        "pods": "2",
        "processesPerPod": "1",
        "cpuPerRank": more_than_half_a_node(two_nodes),
    }
    stack.set_all(wider)
    stack.up()
    two_nodes.wait_done(ON_TWO)
    pods = two_nodes.get("pods", "-l", "job-name=train-indexed")["items"]
    names = {f"sandbox-{two_nodes.cluster.name}", f"sandbox-{two_nodes.cluster.name}-2"}
    assert {pod["spec"]["nodeName"] for pod in pods} == names
    one, two = two_nodes.losses(ON_ONE), two_nodes.losses(ON_TWO)
    assert sorted(one) == sorted(two) == list(range(1, STEPS + 1))
    assert two[STEPS] == pytest.approx(one[STEPS], abs=LOSS_TOLERANCE)

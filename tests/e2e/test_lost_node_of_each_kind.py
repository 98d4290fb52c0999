"""A machine is lost under each kind of workload, and the run goes on without anybody's help.

`tests/e2e/test_several_nodes.py` has the same for `indexed-job`, and what a person can do.
"""

from collections.abc import Iterator

import pytest

from sandbox.controllers import CONTROLLERS
from sandbox.controllers.controller import running
from sandbox.stack import Stack
from tests.e2e.asking import changes
from tests.e2e.engines import ENGINES
from tests.e2e.lab import Lab, run_settings, wait_for
from tests.e2e.lost_node import SETTINGS, STEPS, lose_a_node, places, start

NEEDED = ("jobset", "trainer", "training-operator", "mpi-operator", "volcano", "lws")
NODES = 3
KINDS = ("multi-pod", *(engine.kind.name for engine in ENGINES))

pytestmark = pytest.mark.in_depth


@pytest.fixture(scope="module")
def served(lab: Lab) -> Iterator[Lab]:
    lab.cluster.up(NODES)
    try:
        with running(lab.cluster, [CONTROLLERS[name] for name in NEEDED]):
            yield lab
    finally:
        lab.cluster.up(1)


@pytest.fixture(scope="module")
def stack(served: Lab) -> Iterator[Stack]:
    settings = {**run_settings("e2e-lost", STEPS), **SETTINGS, "lostNodes": "replace"}
    made = served.stack("e2e-lost-kinds", "sandbox", settings)
    yield made
    made.destroy()


@pytest.mark.timeout(1200)  # it waits for steps twice, and half a minute until a node is missed
@pytest.mark.parametrize("topology", KINDS)
def test_lost_node_is_replaced_under_each_kind(served: Lab, stack: Stack, topology: str) -> None:
    """M7: the pod that was there is made anew on a spare node, by the controller of the kind.

    Kubernetes ends no pod on a machine that does not answer, and controllers that end all pods of
    a run wait for it.
    """
    run_name = f"e2e-lost-{topology}"
    start(served, stack, run_name, topology)
    try:
        pod, node = lose_a_node(served)
        made = max(served.losses(run_name))
        wait_for("steps after the last one", lambda: max(served.losses(run_name)) > made, 300)
        there = places(served)
        assert node not in there.values(), f"{pod} was on it: {there}"
        assert len(set(there.values())) == 2
        losses = served.losses(run_name)
        assert sorted(losses) == list(range(1, max(losses) + 1))
        assert set(changes(stack.up())) == {"unchanged"}
    finally:
        served.cluster.up(NODES)

"""A machine is lost under each kind of workload, and the run goes on without anybody's help.

Under `lws` the machine of each of its two roles is lost, because the workers of a LeaderWorkerSet
belong to the leader's pod. There `lostNodes: wait` is tested too.

`tests/e2e/test_several_nodes.py` has the same for `indexed-job`, and what a person can do.
"""

import re
from collections.abc import Iterator

import pytest

from sandbox.controllers import CONTROLLERS
from sandbox.controllers.controller import running
from sandbox.stack import Stack
from tests.e2e.asking import changes
from tests.e2e.engines import ENGINES, LWS
from tests.e2e.lab import Lab, run_settings, wait_for
from tests.e2e.lost_node import SETTINGS, STEPS, end_node, lose_a_node, places, seen, start

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
    """With `lostNodes: replace`, the kind's controller makes the lost pod anew on a spare node.

    By itself Kubernetes ends no pod on a machine that does not answer, and controllers that end all
    pods of a run would wait for it.
    """
    run_name = f"e2e-lost-{topology}"
    start(served, stack, run_name, topology)
    try:
        pod, node = lose_a_node(served)
        # Until then, the step that was under way when the node was lost may still be written.
        wait_for("the end of the lost pod", lambda: places(served).get(pod) != node, 300)
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


@pytest.fixture
def off_the_first(served: Lab) -> Iterator[Lab]:
    """Yield the lab while its first node takes no new pod, so that the run's pods are on the
    others.
    """
    first = f"sandbox-{served.cluster.name}"
    served.kubectl("cordon", first)
    try:
        yield served
    finally:
        served.kubectl("uncordon", first)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("lost_nodes", ["replace", "wait"])
@pytest.mark.parametrize("index", [0, 1], ids=["leader", "worker"])
def test_lost_node_of_either_lws_role(
    off_the_first: Lab, stack: Stack, index: int, lost_nodes: str
) -> None:
    """If the machine of the leader or of a worker is lost, the pod is made anew on the spare node.

    With `lostNodes: wait` the run stands still first. Then status names the node, the pod and a
    command, and after this command the run goes on.
    """
    lab, run_name = off_the_first, f"e2e-lost-lws-{index}-{lost_nodes}"
    stack.set("lostNodes", lost_nodes)
    start(lab, stack, run_name, "lws")
    pod, node = next(each for each in places(lab).items() if LWS.is_pod(each[0], index))
    lab.kubectl("uncordon", f"sandbox-{lab.cluster.name}")
    taint = ""
    try:
        end_node(lab, node)
        made = max(lab.losses(run_name))
        if lost_nodes == "wait":

            def told() -> str:
                run = seen(lab)
                return run.detail if run.state == "stalled" and "`kubectl" in run.detail else ""

            detail = wait_for("status to name the node", told, 300)
            assert detail.startswith(f"pod {pod} is on node {node}, which does not answer")
            assert places(lab)[pod] == node
            command = re.search(r"`kubectl (taint node .*)`", detail)
            assert command is not None
            taint = command[1].split()[-1]
            made = max(lab.losses(run_name))
            lab.kubectl(*command[1].split())
        wait_for("steps after the last one", lambda: max(lab.losses(run_name)) > made, 300)
        there = places(lab)
        assert sorted(there) == [LWS.pods(0), LWS.pods(1)]
        assert node not in there.values()
        assert len(set(there.values())) == 2
        losses = lab.losses(run_name)
        assert sorted(losses) == list(range(1, max(losses) + 1))
        assert set(changes(stack.up())) == {"unchanged"}
    finally:
        if taint:
            lab.kubectl("taint", "node", node, f"{taint}-")
        lab.cluster.up(NODES)

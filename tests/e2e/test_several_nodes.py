"""A training with pods on several nodes: its loss is that of one node, and it outlives a node.

A real cluster needs shared storage. Here all nodes of the sandbox see the same folder of this
machine, and `storage: host-path` with `shared` is a stand-in for such a storage. `imageDelivery:
import` brings the image to the first node; the others get it from there, as with k3s' embedded
registry.
"""

import re
import time
from collections.abc import Iterator

import pytest

from cli.status.screen import platform_line
from cli.status.snapshot import take_snapshot
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from sandbox.follow import train_points
from sandbox.stack import Stack
from tests.e2e.asking import changes
from tests.e2e.lab import ENDLESS, NAMESPACE, Lab, run_settings, wait_for
from tests.e2e.lost_node import SETTINGS, STEPS, after_the_first, lose_a_node, places, spread, start

ON_ONE, ON_TWO, ON_LOST = "e2e-one-node", "e2e-two-nodes", "e2e-lost-node"
ON_REPLACED, ON_FEWER = "e2e-replaced-node", "e2e-fewer-nodes"
ON_CUT, ON_MORE = "e2e-cut-link", "e2e-more-nodes"
CUT_SECONDS = 60
LOSS_TOLERANCE = 1e-5


@pytest.fixture
def nodes(lab: Lab) -> Iterator[Lab]:
    """Yield the lab with three nodes."""
    lab.cluster.up(3)
    try:
        yield lab
    finally:
        lab.cluster.up(1)


@pytest.fixture
def stack(nodes: Lab) -> Iterator[Stack]:
    made = nodes.stack("e2e-nodes", "sandbox", {**run_settings(ON_ONE, STEPS), **SETTINGS})
    yield made
    made.destroy()


def test_pods_of_one_training_on_two_nodes_end_with_the_loss_of_one(
    nodes: Lab, stack: Stack
) -> None:
    """Two pods of two ranks on two nodes end with the loss of one pod with four ranks."""
    stack.set("processesPerPod", "4")
    stack.up()
    nodes.wait_done(ON_ONE)
    stack.set_all({"runName": ON_TWO, **spread(nodes, ranks=2)})
    stack.up()
    nodes.wait_done(ON_TWO)
    assert len(set(places(nodes).values())) == 2
    assert "2 nodes see each other's new files: " in stack.output("volumeProof")
    one, two = nodes.losses(ON_ONE), nodes.losses(ON_TWO)
    assert sorted(one) == sorted(two) == list(range(1, STEPS + 1))
    assert two[STEPS] == pytest.approx(one[STEPS], abs=LOSS_TOLERANCE)


def test_run_goes_on_with_fewer_nodes_and_takes_one_back(nodes: Lab, stack: Stack) -> None:
    """With `run.train.nodes_min` a run goes on with one pod while there is no room for the second
    one.

    When there is room again, both train. All nodes are cordoned meanwhile, which stands for a
    cluster without a spare node.
    """
    elastic = {
        "run.train.nodes_min": "1",
        "run.train.nodes_wait_seconds": "2",
        "run.train.nodes_return_seconds": "2",
    }
    stack.set_all({**run_settings(ON_FEWER, ENDLESS), **spread(nodes), **elastic})
    stack.up()
    wait_for("a step of both", lambda: newest_world(nodes) == 2, 300)
    names = [node["metadata"]["name"] for node in nodes.get("nodes")["items"]]
    nodes.kubectl("cordon", *names)
    try:
        second = next(pod for pod in places(nodes) if "train-indexed-1-" in pod)
        nodes.kubectl("delete", "pod", second, "--grace-period=0", "--force", "--wait=false")
        wait_for("steps of one alone", lambda: newest_world(nodes) == 1, 300)
        api = Api(Access(kubeconfig_path=str(nodes.cluster.kubeconfig)))

        def told() -> bool:
            (run,) = take_snapshot(api, NAMESPACE).runs
            return run.state == "training" and "with 1 of 2 pods: " in run.detail

        wait_for("status to say so", told, 120)
    finally:
        nodes.kubectl("uncordon", *names)
    wait_for("steps of both again", lambda: newest_world(nodes) == 2, 300)
    losses = nodes.losses(ON_FEWER)
    assert sorted(losses) == list(range(1, max(losses) + 1))
    assert len(set(places(nodes).values())) == 2


def newest_world(lab: Lab) -> int:
    """Return how many ranks have made the newest step of the elastic run; 0 if there is no step
    yet.

    A pod that comes later than `nodes_wait_seconds` is not in the first round, but in the next one.
    """
    points = train_points(lab.run_dir(ON_FEWER))
    return points[-1]["world_size"] if points else 0


@pytest.mark.in_depth
def test_run_goes_on_by_itself_where_lost_nodes_are_replaced(nodes: Lab, stack: Stack) -> None:
    """With `lostNodes: replace` a run goes on after a node is lost, without anybody's help.

    The lost pod is replaced on another node, no restart is counted, and the lost node's other pods
    of the program end too.
    """
    stack.set("lostNodes", "replace")
    stack.up()

    def is_watched() -> bool:
        status = nodes.get("deployment", "disttrain-lost-nodes")["status"]
        return status.get("readyReplicas") == 1

    wait_for("the pod that looks at nodes", is_watched, 300)
    start(nodes, stack, ON_REPLACED)
    pod, node = lose_a_node(nodes)
    # Until then, the step that was under way when the node was lost may still be written.
    wait_for("the end of the lost pod", lambda: pod not in places(nodes), 300)
    made = max(nodes.losses(ON_REPLACED))
    wait_for("steps after the last one", lambda: max(nodes.losses(ON_REPLACED)) > made, 300)
    assert node not in places(nodes).values()
    assert len(set(places(nodes).values())) == 2
    there = f"--field-selector=spec.nodeName={node},status.phase!=Succeeded"
    wait_for("the end of our pods there", lambda: not nodes.get("pods", there)["items"], 300)
    failed = nodes.get("job", "train-indexed")["status"].get("failed", 0)
    assert failed == 0  # no restart was counted
    assert set(changes(stack.up())) == {"unchanged"}


@pytest.mark.in_depth
def test_run_goes_on_after_a_link_was_cut_for_a_minute(nodes: Lab, stack: Stack) -> None:
    """After the link of a node was cut for a minute, the run goes on by itself and leaves no step
    out.
    """
    start(nodes, stack, ON_CUT)
    _, node = after_the_first(nodes)
    number = int(node.removeprefix(f"sandbox-{nodes.cluster.name}-"))
    link = nodes.cluster.peer_link(number)
    link.cut()
    try:
        time.sleep(CUT_SECONDS)
    finally:
        link.mend()
    made = max(nodes.losses(ON_CUT))
    wait_for("steps after the cut", lambda: max(nodes.losses(ON_CUT)) > made + 20, 300)
    losses = nodes.losses(ON_CUT)
    assert sorted(losses) == list(range(1, max(losses) + 1))
    assert len(set(places(nodes).values())) == 2


@pytest.mark.in_depth
def test_node_that_joins_is_used_by_the_next_start(lab: Lab) -> None:
    """A run that has begun on two nodes goes on from its checkpoint on three, after a node has
    joined.
    """
    lab.cluster.up(2)
    stack = lab.stack("e2e-nodes", "sandbox", {**run_settings(ON_MORE, ENDLESS), **SETTINGS})
    try:
        start(lab, stack, ON_MORE)
        assert len(set(places(lab).values())) == 2
        lab.cluster.up(3)
        made = max(lab.losses(ON_MORE))
        stack.set("pods", "3")
        stack.up()
        assert len(set(places(lab).values())) == 3
        wait_for("steps of all three", lambda: max(lab.losses(ON_MORE)) > made, 300)
        points = train_points(lab.run_dir(ON_MORE))
        assert points[-1]["world_size"] == 3
        steps = [point["step"] for point in points]
        assert steps == sorted(set(steps))  # the two pods have saved, so no step was made twice
    finally:
        stack.destroy()
        lab.cluster.up(1)


@pytest.mark.timeout(1200)  # two waits for steps, and half a minute until Kubernetes misses a node
def test_run_goes_on_on_a_spare_node_when_one_is_drained_or_lost(nodes: Lab, stack: Stack) -> None:
    """A run goes on on a spare node after its node is drained, and after its node is lost.

    When a node is drained, the run saves, and loses neither a step nor a restart. When a node is
    lost, status names it by its missing report at first, and half a minute later by what Kubernetes
    says. The command that status names is all that is to be done.
    """
    start(nodes, stack, ON_LOST)
    pod, node = after_the_first(nodes)
    drain = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=300s")
    nodes.kubectl("drain", node, *drain)
    made = max(nodes.losses(ON_LOST))
    wait_for("steps after the last one", lambda: max(nodes.losses(ON_LOST)) > made + 5, 300)
    assert pod not in places(nodes)
    assert node not in places(nodes).values()
    steps = [point["step"] for point in train_points(nodes.run_dir(ON_LOST))]
    assert steps == sorted(set(steps))  # none was made twice
    assert nodes.get("job", "train-indexed")["status"].get("failed", 0) == 0
    nodes.kubectl("uncordon", node)

    pod, node = lose_a_node(nodes)
    api = Api(Access(kubeconfig_path=str(nodes.cluster.kubeconfig)))
    soon = f"pod {pod} is on node {node}, which has not reported for "
    told_soon: list[str] = []

    def told() -> str:
        seen = take_snapshot(api, NAMESPACE)
        (run,) = seen.runs
        if run.detail.startswith(soon):
            assert f"{node} has not reported for " in platform_line(seen.platform)
            told_soon.append(run.state)
        knows = run.state == "stalled" and "which does not answer" in run.detail
        return run.detail if knows else ""

    detail = wait_for("status to name the node", told, 300)
    assert told_soon
    assert detail.startswith(f"pod {pod} is on node {node}, which does not answer")
    command = re.search(r"`kubectl (taint node .*)`", detail)
    assert command is not None
    # The step that was under way when the node was lost has been written by now.
    made = max(nodes.losses(ON_LOST))
    nodes.kubectl(*command[1].split())
    wait_for("steps after the last one", lambda: max(nodes.losses(ON_LOST)) > made, 300)
    assert node not in places(nodes).values()
    assert len(set(places(nodes).values())) == 2

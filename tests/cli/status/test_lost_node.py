"""A run that has lost a node says which, whatever its other pods say."""

from typing import Any

import pytest

from cli.status.judge import RunStatus
from cli.status.lost_node import on_lost_node

TRAINS = RunStatus("dev", "disttrain", "Job train-indexed", 2, "recovering", "rank 0 lost a peer")


def pod(name: str, node: str, phase: str = "Running") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodeName": node}, "status": {"phase": phase}}


def test_pod_on_a_node_without_an_answer_stalls_the_run() -> None:
    found = on_lost_node(TRAINS, [pod("a-0", "n1"), pod("a-1", "n2")], ["n2"])
    assert found.state == "stalled"
    assert found.detail.startswith("pod a-1 is on node n2, which does not answer")
    assert "kubectl taint node n2 node.kubernetes.io/out-of-service" in found.detail
    both = on_lost_node(TRAINS, [pod("a-0", "n2"), pod("a-1", "n2")], ["n2"])
    assert both.detail.startswith("pod a-0 and 1 more is on node n2")


@pytest.mark.parametrize(
    ("pods", "not_ready"),
    [
        ([pod("a-0", "n1")], []),
        ([pod("a-0", "n1")], ["n2"]),
        ([pod("a-0", "n2", "Succeeded")], ["n2"]),
        ([{"metadata": {"name": "a"}, "spec": {}, "status": {"phase": "Pending"}}], ["n2"]),
    ],
)
def test_other_pods_leave_the_state_as_it_is(pods: list[Any], not_ready: list[str]) -> None:
    assert on_lost_node(TRAINS, pods, not_ready) == TRAINS


def test_run_that_is_over_needs_no_node() -> None:
    finished = RunStatus("dev", "disttrain", "Job train-indexed", 2, "finished")
    assert on_lost_node(finished, [pod("a-0", "n2")], ["n2"]) == finished

"""`status` says which node a run has lost, whatever its other pods say."""

from dataclasses import replace
from typing import Any

import pytest

from cli.status.judge import RunStatus
from cli.status.lost_node import on_lost_node
from cli.status.platform_status import PlatformStatus

TRAINS = RunStatus("dev", "disttrain", "Job train-indexed", 2, "recovering", "rank 0 lost a peer")


def pod(name: str, node: str, phase: str = "Running") -> dict[str, Any]:
    """Return a pod on this node."""
    return {"metadata": {"name": name}, "spec": {"nodeName": node}, "status": {"phase": phase}}


def not_ready(*names: str) -> PlatformStatus:
    """Return a platform of three nodes, of which these are not ready."""
    return PlatformStatus(3, names)


def silent(**seconds: float) -> PlatformStatus:
    """Return a platform of three nodes, of which these have not reported for so many seconds."""
    return PlatformStatus(3, silent=seconds)


def test_pod_on_a_node_without_an_answer_stalls_the_run() -> None:
    """A run with a pod on a node that does not answer is shown as stalled, with the pod, the node
    and the command that lets Kubernetes replace the pod.
    """
    found = on_lost_node(TRAINS, [pod("a-0", "n1"), pod("a-1", "n2")], not_ready("n2"))
    assert found.state == "stalled"
    assert found.detail.startswith("pod a-1 is on node n2, which does not answer")
    assert "kubectl taint node n2 node.kubernetes.io/out-of-service" in found.detail
    both = on_lost_node(TRAINS, [pod("a-0", "n2"), pod("a-1", "n2")], not_ready("n2"))
    assert both.detail.startswith("pod a-0 and 1 more is on node n2")


@pytest.mark.parametrize(
    ("before", "after", "more"),
    [(state, "stalled", "") for state in ("recovering", "quiet", "unknown")]
    + [("training", "training", "")]
    + [(state, state, "; rank 0 lost a peer") for state in ("starting", "waiting", "failing")],
)
def test_node_that_is_silent_for_some_seconds_is_named_with_its_pod(
    before: str, after: str, more: str
) -> None:
    """A node that is silent for some seconds is named with its pod. It may have lost its kubelet
    alone, and so a run that steps, or has not begun, is not called stalled.
    """
    run = replace(TRAINS, state=before)
    found = on_lost_node(run, [pod("a-0", "n1"), pod("a-1", "n2")], silent(n2=13.2))
    said = "pod a-1 is on node n2, which has not reported for 13 s"
    assert (found.state, found.detail) == (after, f"{said}{more}")
    alone = on_lost_node(replace(run, detail=""), [pod("a-1", "n2")], silent(n2=13.2))
    assert alone.detail == said


def test_node_that_kubernetes_has_missed_too_is_no_longer_called_silent() -> None:
    """A node that Kubernetes calls not ready is said to give no answer, and not to be silent for
    seconds.
    """
    platform = PlatformStatus(3, ("n2",), silent={"n2": 55.0})
    found = on_lost_node(TRAINS, [pod("a-1", "n2")], platform)
    assert "which does not answer" in found.detail


@pytest.mark.parametrize("platform", [not_ready(), not_ready("n2"), silent(), silent(n2=13.0)])
@pytest.mark.parametrize(
    "other",
    [
        pod("a-0", "n1"),
        pod("a-0", "n2", "Succeeded"),
        {"metadata": {"name": "a"}, "spec": {}, "status": {"phase": "Pending"}},
    ],
)
def test_other_pods_leave_the_state_as_it_is(platform: PlatformStatus, other: Any) -> None:
    """Pods on other nodes, pods that have ended and pods without a node do not change the state of
    a run.
    """
    assert on_lost_node(TRAINS, [other], platform) == TRAINS


def test_run_that_is_over_needs_no_node() -> None:
    """A finished run stays finished, though its pod's node is lost."""
    finished = RunStatus("dev", "disttrain", "Job train-indexed", 2, "finished")
    for platform in (not_ready("n2"), silent(n2=13.0)):
        assert on_lost_node(finished, [pod("a-0", "n2")], platform) == finished

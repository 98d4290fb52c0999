"""`status` says what the pods that watch machines have found, with the node, and which of them are
silent.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from cli.status.node_findings import NodeFinding, clock_findings_of, node_findings
from infra.in_cluster.health_cordon import ANNOTATION, Mark
from infra.in_cluster.health_findings import Finding, clock_findings
from infra.in_cluster.node_health import condition

NOW = datetime(2026, 11, 22, 7, 0, tzinfo=UTC)
XID = Finding("xid-79 0000:3b:00", "GPU 0000:3b:00 reported Xid 79", is_unusable=True)
FULL = Finding("full", "the kubelet's disk is full")


def node(name: str, mark: Mark | None = None, ready: str = "True") -> dict[str, Any]:
    """Return a node, cordoned by the watch if it has a mark."""
    annotations = {ANNOTATION: mark.to_text()} if mark else {}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"unschedulable": bool(mark)},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def watch(on: str, *findings: Finding, seconds_ago: float = 30) -> dict[str, Any]:
    """Return the pod that watches this node, and that last spoke so many seconds ago."""
    then = (NOW - timedelta(seconds=seconds_ago)).isoformat().replace("+00:00", "Z")
    return {
        "metadata": {
            "name": f"watch-{on}",
            "labels": {"app.kubernetes.io/component": "node-health"},
            "creationTimestamp": then,
        },
        "spec": {"nodeName": on},
        "status": {"conditions": [condition(findings, then)]},
    }


def test_healthy_machines_need_no_line() -> None:
    """Machines without a finding, and machines without a watch, have no line."""
    assert node_findings([node("a")], [watch("a")], NOW) == ()
    assert node_findings([node("a")], [], NOW) == ()


def test_each_finding_is_said_and_the_worst_is_first() -> None:
    """All findings of a machine are in one line, the worst first. Only one that makes the machine
    unusable needs attention.
    """
    found = node_findings([node("a"), node("b")], [watch("b", FULL, XID), watch("a", FULL)], NOW)
    assert found == (
        NodeFinding("a", FULL.text),
        NodeFinding("b", f"{XID.text}; {FULL.text}", needs_attention=True),
    )


def test_cordon_of_ours_is_said_with_the_way_back() -> None:
    """A cordon that the watch has set is named with the command that ends it. A cordon that
    somebody else has set is not named, because the scheduler's words are enough.
    """
    ours, theirs = node("a", Mark(True, "Xid 79")), node("b", Mark(accepted=("x",)))
    (found,) = node_findings([ours, theirs], [], NOW)
    assert (found.node, found.needs_attention) == ("a", True)
    assert "because Xid 79" in found.text
    assert found.text.endswith("kubectl uncordon a")


def test_watch_that_says_nothing_is_said_on_a_ready_node() -> None:
    """A watch that has been silent for five minutes is named if its node is ready."""
    silent = [watch(name, seconds_ago=301) for name in ("a", "b")]
    (found,) = node_findings([node("a"), node("b", ready="Unknown")], silent, NOW)
    assert (found.node, found.needs_attention) == ("a", False)
    assert "watch-a does not say" in found.text


def test_new_watch_has_time_for_its_first_words() -> None:
    """A watch that has not said anything yet is named only when it is five minutes old."""
    young, old = watch("a", seconds_ago=299), watch("a", seconds_ago=301)
    for pod in (young, old):
        pod["status"] = {}
    assert node_findings([node("a")], [young], NOW) == ()
    assert len(node_findings([node("a")], [old], NOW)) == 1


def test_wrong_clock_is_said_once() -> None:
    """A wrong clock is said once, also if a pod that watches the machine says it too."""
    clocks = {"a": -600.0, "b": 0.0, "c": 33.4}
    far, near = clock_findings_of(clocks, ())
    assert (far.node, near.node) == ("a", "c")
    assert near.text.startswith("the clock is 33 s ahead of the API server's; the times here are")
    watched = node_findings([node("a")], [watch("a", FULL, *clock_findings(-601))], NOW)
    assert clock_findings_of(clocks, watched) == (near,)

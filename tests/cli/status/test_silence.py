"""Which nodes `status` calls silent, by their Leases as the API server shows them."""

from typing import Any

import pytest

from cli.status.silence import silent_nodes
from infra.kube.pods.silent_machines import has_been_missed
from tests.cli.records import NOW
from tests.cli.status.leases import lease

NODES = [{"metadata": {"name": name}} for name in ("a", "b", "c")]


@pytest.mark.parametrize(
    ("leases", "silent"),
    [
        ([lease("a", 1), lease("b", 9), lease("c", 10.4)], {}),
        ([lease("a", 1), lease("b", 12), lease("c", 4)], {}),  # the last moment of a healthy one
        ([lease("a", 1), lease("b", 13), lease("c", 4)], {"b": 13.0}),
        ([lease("a", 11), lease("b", 13), lease("c", 400)], {"b": 13.0, "c": 400.0}),
        # Nobody reports: the API server was away, or the only node is silent.
        ([lease("a", 30), lease("b", 31), lease("c", 32)], {}),
        ([lease("a", 300)], {}),
        # The leases may not be read, or are not there.
        ([], {}),
        ([lease("a", 1)], {}),
        # A lease that outlived its node.
        ([lease("a", 1), lease("gone", 4000)], {}),
        # Clocks of nodes that are wrong by minutes: only the API server's counts.
        ([lease("a", 1, -600), lease("b", 5, 600), lease("c", 9, -60)], {}),
        ([lease("a", 1, -600), lease("b", 20, 600), lease("c", 9, -60)], {"b": 20.0}),
        # Kubelets that were told to renew seldom or often.
        ([lease("a", 1), lease("b", 27, valid=100)], {}),
        ([lease("a", 1), lease("b", 29, valid=100)], {"b": 29.0}),
        ([lease("a", 1), lease("b", 8, valid=20)], {"b": 8.0}),
    ],
)
def test_silent_are_those_that_should_have_reported_by_now(
    leases: list[dict[str, Any]], silent: dict[str, float]
) -> None:
    """A node is called silent when it should have reported by now, by the API server's clock, and
    another node has reported.
    """
    assert silent_nodes(NODES, leases, NOW) == silent


def test_server_that_notes_no_times_makes_nobody_silent() -> None:
    """A Lease without the API server's note of its time makes no node silent."""
    unknown = lease("b", 50)
    del unknown["metadata"]["managedFields"]
    assert silent_nodes(NODES, [lease("a", 1), unknown], NOW) == {}


def test_node_is_missed_once_kubernetes_knows_nothing_of_it() -> None:
    """A node counts as missed only if Kubernetes does not know its state. A node that says itself
    that it is not ready still answers.
    """

    def node(status: str) -> dict[str, Any]:
        return {"status": {"conditions": [{"type": "Ready", "status": status}]}}

    # A kubelet that says itself that it is not ready still answers.
    missed = [has_been_missed(node(status)) for status in ("True", "False", "Unknown")]
    assert missed == [False, False, True]
    assert not has_been_missed({"status": {}})

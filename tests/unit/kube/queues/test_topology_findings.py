"""Which nodes a topology has, and whether Kueue takes up a run's wish about its places."""

from typing import Any, cast

import pytest

from infra.kube.api_server.api import Api
from infra.kube.queues.queue_place import ignores_topology
from infra.kube.queues.topology_findings import no_topology_served, topology_nodes
from infra.names import PREFERRED_TOPOLOGY, REQUIRED_TOPOLOGY

HOST, RACK, ZONE = "kubernetes.io/hostname", "example.com/rack", "topology.kubernetes.io/zone"
Json = dict[str, Any]


def node(name: str, **labels: str) -> Json:
    given = {HOST: name, **{f"example.com/{key}": value for key, value in labels.items()}}
    return {"metadata": {"name": name, "labels": given}}


def names(nodes: Any) -> list[str]:
    """Return the names of the nodes."""
    return [each["metadata"]["name"] for each in nodes]


def test_label_that_no_node_has_is_refused_with_the_nodes() -> None:
    nodes = [node("b", row="1"), node("a", row="1")]
    found = topology_nodes(nodes, ["example.com/row", RACK, HOST])
    assert found.problem.startswith(f"queues.topology[1]: '{RACK}' cannot be used: no node has")
    assert "It is missing on a, b. Label each node: kubectl label node NAME" in found.problem
    many = topology_nodes([node(f"n{number:02}") for number in range(12)], [RACK, HOST])
    assert "n08, n09, and 2 more" in many.problem
    assert "no node that takes pods" in topology_nodes([], [RACK]).problem


def test_labels_that_no_node_has_together_are_refused() -> None:
    found = topology_nodes(
        [node("a", row="1"), node("b", rack="1")], ["example.com/row", RACK, HOST]
    )
    assert "no node has all of these labels" in found.problem
    assert f"example.com/row is missing on b; {RACK} is missing on a" in found.problem


def test_nodes_without_a_label_are_left_out_and_named() -> None:
    """Nodes without a label of the topology do not count for the quota, and a note names them.
    Kueue puts no pod of the queue there.
    """
    found = topology_nodes([node("a", rack="1"), node("b"), node("c", rack="2")], [RACK, HOST])
    assert (found.problem, names(found.nodes)) == ("", ["a", "c"])
    assert f"will not use b, and its quota does not count them: {RACK} is missing on b" in (
        found.note
    )
    complete = topology_nodes([node("a", rack="1")], [RACK, HOST])
    assert (complete.problem, complete.note) == ("", "")
    without = topology_nodes([node("a"), node("b")], [])
    assert (without.problem, without.note, names(without.nodes)) == ("", "", ["a", "b"])


class Served:
    """Stands in for a cluster that serves some of Kueue's kinds."""

    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds

    def get(self, path: str) -> Json:
        assert path == "/apis/kueue.x-k8s.io/v1beta1"
        return {"resources": [{"kind": kind} for kind in self.kinds]}


def test_kueue_without_topologies_is_refused() -> None:
    old = cast(Api, Served("ClusterQueue", "LocalQueue"))
    told = no_topology_served(old, "v1beta1", [RACK, HOST])
    assert told.startswith(f"queues.topology: ['{RACK}', '{HOST}'] cannot be used: the cluster")
    assert "serves no Topology of kueue.x-k8s.io/v1beta1, so its Kueue is older than 0.14" in told
    assert "pulumi config rm --path queues.topology" in told
    assert no_topology_served(old, "v1beta1", []) == ""
    assert no_topology_served(cast(Api, Served("Topology")), "v1beta1", [RACK]) == ""


@pytest.mark.parametrize("asks", [REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY])
def test_wish_that_kueue_does_not_take_up_is_seen(asks: str) -> None:
    """The program notices if Kueue ignores a run's wish about its places, as Kueue does if its
    feature gate is off. The annotation is then in the Workload, but without a `topologyRequest`.
    """

    def workload(annotations: dict[str, str], **fields: object) -> Json:
        return {
            "spec": {
                "podSets": [{"template": {"metadata": {"annotations": annotations}}, **fields}]
            }
        }

    assert ignores_topology(workload({asks: RACK}))
    assert not ignores_topology(workload({asks: RACK}, topologyRequest={"required": RACK}))
    assert not ignores_topology(workload({}))
    assert not ignores_topology({"spec": {"podSets": [{"template": {}}]}})

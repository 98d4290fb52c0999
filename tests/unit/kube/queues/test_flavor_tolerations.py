"""Taints of nodes that the pods of a run tolerate only because of their queue of Kueue."""

from collections.abc import Mapping
from typing import Any

from infra.kube.api_server.findings import Findings
from infra.kube.errors import ApiError
from infra.kube.runs.pods_findings import RunPods, pods_findings
from tests.unit.kube.server import ApiServer, Json, api_of

POD: Json = {"metadata": {}, "spec": {"containers": [{"name": "t", "resources": {}}]}}
TAINT: Json = {"key": "spot", "value": "true", "effect": "NoSchedule"}
KUEUE = "/apis/kueue.x-k8s.io"
FLAVORS = [{"name": "reserved"}, {"name": "spot"}]


class Cluster(ApiServer):
    """A stand-in for a cluster of one node with a taint, and a queue with two flavors.

    Args:
        tolerations: those of the second flavor.
        hidden: the end of a path that these credentials may not read; empty: there is none.
    """

    def __init__(self, tolerations: list[Json], hidden: str = "") -> None:
        self._tolerations, self._hidden = tolerations, hidden

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any
    ) -> Json | str | None:
        if method == "POST":
            return body
        if self._hidden and path.endswith(self._hidden):
            raise ApiError(403, "forbidden")
        node = {"metadata": {"name": "n"}, "spec": {"taints": [TAINT]}}
        node["status"] = {"allocatable": {"pods": "9"}}
        groups = [{"coveredResources": ["cpu"], "flavors": FLAVORS}]
        return {
            "/api/v1/nodes": {"items": [node]},
            "/api/v1/namespaces/ml/resourcequotas": {"items": []},
            KUEUE: {"versions": [{"version": "v1beta2"}]},
            f"{KUEUE}/v1beta2/namespaces/ml/localqueues/gpus": {"spec": {"clusterQueue": "team"}},
            f"{KUEUE}/v1beta2/clusterqueues/team": {
                "metadata": {"name": "team"},
                "spec": {"resourceGroups": groups},
            },
            f"{KUEUE}/v1beta2/resourceflavors/spot": {"spec": {"tolerations": self._tolerations}},
        }.get(path)


def found_in(cluster: Cluster, queue: str = "gpus") -> Findings:
    return pods_findings(api_of(cluster), RunPods("ml", POD, 1, grows=False, queue=queue))


def test_toleration_of_a_flavor_counts() -> None:
    """A run in a queue is not refused for a taint that a flavor of the queue tolerates, because
    Kueue adds the flavor's tolerations to the pods when it starts them.
    """
    tolerated = [{"key": "spot", "operator": "Exists"}]
    assert found_in(Cluster(tolerated)) == Findings()
    for cluster, queue in ((Cluster([]), "gpus"), (Cluster(tolerated), "")):
        (problem,) = found_in(cluster, queue).problems
        assert problem.startswith("tolerations: the pods tolerate no node")


def test_flavors_that_are_hidden_refuse_nothing() -> None:
    """If a user may not read the flavors of the queue, no run is refused for a taint, and a note
    says that this was not checked.
    """
    for hidden in ("/clusterqueues/team", "/resourceflavors/spot"):
        found = found_in(Cluster([], hidden))
        assert found.problems == []
        (note,) = found.notes
        assert note.startswith("it was not checked which taints the pods in queue gpus tolerate")

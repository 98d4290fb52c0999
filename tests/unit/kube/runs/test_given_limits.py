"""Limits that a namespace gives to pods without limits of their own."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from infra.kube.runs.pods_findings import RunPods, pods_findings
from tests.unit.kube.server import ApiServer, Json, api_of

CONTAINER: Json = {"name": "trainer", "resources": {"requests": {"cpu": "1", "memory": "4Gi"}}}
POD: Json = {"metadata": {}, "spec": {"containers": [CONTAINER]}}


class Namespace(ApiServer):
    """A stand-in for a cluster that gives these limits to the container `trainer`, as a LimitRange
    does. Before that container, it adds the container of a service mesh with limits of its own.
    """

    def __init__(self, limits: Mapping[str, str]) -> None:
        self._limits = limits

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any
    ) -> Json | str | None:
        if method == "POST":
            assert query == {"dryRun": "All"}
            made = deepcopy(body)
            (trainer,) = made["spec"]["containers"]
            own = trainer["resources"].get("limits", {})
            trainer["resources"]["limits"] = {**self._limits, **own}
            mesh = {"name": "mesh", "resources": {"limits": {"memory": "1Gi"}}}
            made["spec"]["containers"] = [mesh, trainer]
            return made
        offers = {"pods": "9", "cpu": "8", "memory": "32Gi"}
        node = {"metadata": {"name": "n"}, "status": {"allocatable": offers}, "spec": {}}
        return {
            "/api/v1/nodes": {"items": [node]},
            "/api/v1/namespaces/ml/resourcequotas": {"items": []},
        }.get(path)


def notes(limits: Mapping[str, str], pod: Json = POD) -> list[str]:
    found = pods_findings(api_of(Namespace(limits)), RunPods("ml", pod, 1, grows=False))
    assert found.problems == []
    return found.notes


def test_limits_of_a_range_are_said() -> None:
    """A note names the limits that a LimitRange gives to the training pods. Otherwise a pod that
    ends with OOMKilled would look as if its settings asked for too little memory.
    """
    assert notes({}) == []
    assert notes({"cpu": "2", "memory": "8Gi", "ephemeral-storage": "1Gi"}) == [
        "namespace ml gives each training pod limits that no setting asks for: 2 cpu, 8Gi memory "
        "(a LimitRange). With more memory than that a pod is ended (OOMKilled), and with more CPU "
        "it is slowed down. Whoever runs the cluster can raise or remove it: "
        "kubectl -n ml get limitrange"
    ]
    own = deepcopy(POD)
    own["spec"]["containers"][0]["resources"]["limits"] = {"memory": "4Gi", "cpu": "1"}
    assert notes({"cpu": "2", "memory": "8Gi"}, own) == []

"""What a cluster adds to the training pods by its own rules counts in the checks before `up`."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from infra.kube.api_server.findings import Findings
from infra.kube.runs.pods_findings import RunPods, pods_findings
from tests.unit.kube.server import ApiServer, Json, api_of

CONTAINER: Json = {"name": "trainer", "resources": {"requests": {"cpu": "1", "memory": "4Gi"}}}
POD: Json = {"metadata": {}, "spec": {"containers": [CONTAINER]}}
TAINT: Json = {"key": "team", "value": "ml", "effect": "NoSchedule"}
QUOTA: Json = {"metadata": {"name": "q"}, "spec": {"hard": {"limits.memory": "10Gi"}}}


class Cluster(ApiServer):
    """A stand-in for a cluster of one node, which belongs to a team.

    Args:
        change: how the rules of the cluster change the spec of a new pod.
        quotas: the quotas of the namespace.
    """

    def __init__(self, change: Callable[[Json], object], quotas: list[Json]) -> None:
        self._change, self._quotas = change, quotas

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any
    ) -> Json | str | None:
        if method == "POST":
            assert query == {"dryRun": "All"}
            made = deepcopy(body)
            self._change(made["spec"])
            return made
        offers = {"pods": "9", "cpu": "8", "memory": "32Gi", "ephemeral-storage": "9Gi"}
        of_node: Json = {"metadata": {"name": "n", "labels": {"pool": "ml"}}}
        node = {**of_node, "status": {"allocatable": offers}, "spec": {"taints": [TAINT]}}
        return {
            "/api/v1/nodes": {"items": [node]},
            "/api/v1/namespaces/ml/resourcequotas": {"items": self._quotas},
            "/apis/networking.k8s.io/v1/namespaces/ml/networkpolicies": {"items": []},
        }.get(path)


def found_with(
    change: Callable[[Json], object], *quotas: Json, pods: int = 1, pod: Json = POD
) -> Findings:
    cluster = api_of(Cluster(change, list(quotas)))
    return pods_findings(cluster, RunPods("ml", pod, pods, grows=False))


def tolerate(spec: Json) -> None:
    spec["tolerations"] = [{"key": "team", "operator": "Exists"}]


def test_tolerations_of_the_cluster_count() -> None:
    """A run is not refused for a taint that its pods tolerate once they are made, because a rule
    of the namespace adds the toleration.
    """
    (problem,) = found_with(lambda spec: None).problems
    assert problem.startswith("tolerations: the pods tolerate no node")
    assert found_with(tolerate) == Findings()


def test_node_labels_of_the_cluster_count() -> None:
    """A run is refused if a rule of the namespace leads its pods to nodes that do not exist, and a
    note says that no setting asks for these nodes. Otherwise the pods would be Pending for ever.
    """

    def lead_elsewhere(spec: Json) -> None:
        tolerate(spec)
        spec["nodeSelector"] = {"pool": "web"}

    found = found_with(lead_elsewhere)
    (problem,) = found.problems
    assert problem.startswith("nodeSelector: pool: web cannot be used: none of the 1 nodes has")
    assert found.notes == [
        "the cluster gives each training pod of namespace ml a nodeSelector that no setting asks "
        "for: pool: web. So the pods run only on nodes with these labels"
    ]


def limits(**given: str) -> Callable[[Json], object]:
    """Return what a LimitRange with these limits does to a pod.

    The container of a service mesh has limits of its own, which say nothing about the training.
    """

    def change(spec: Json) -> None:
        tolerate(spec)
        (trainer,) = spec["containers"]
        own = trainer["resources"].get("limits", {})
        trainer["resources"]["limits"] = {**given, **own}
        mesh = {"name": "mesh", "resources": {"limits": {"memory": "1Gi"}}}
        spec["containers"] = [mesh, trainer]

    return change


def test_limits_of_the_cluster_count() -> None:
    """A quota of limits is compared with the limits that a LimitRange gives to the pods."""
    assert found_with(limits(memory="8Gi"), QUOTA).problems == []
    (problem,) = found_with(limits(memory="8Gi"), QUOTA, pods=2).problems
    assert problem.startswith("memoryLimitPerRank: 2 pods with a limit of 8Gi memory each: quota q")


def test_limits_of_a_range_are_said() -> None:
    """A note names the limits that a LimitRange gives to the training pods. Otherwise a pod that
    ends with OOMKilled would look as if its settings asked for too little memory.
    """
    (of_mesh,) = found_with(limits()).notes
    found = found_with(limits(cpu="2", memory="8Gi", **{"ephemeral-storage": "1Gi"}))
    assert found.problems == []
    assert found.notes == [
        "namespace ml gives each training pod limits that no setting asks for: 2 cpu, 8Gi memory "
        "(a LimitRange). With more memory than that a pod is ended (OOMKilled), and with more CPU "
        "it is slowed down. Whoever runs the cluster can raise or remove it: "
        "kubectl -n ml get limitrange",
        of_mesh,
    ]
    own = deepcopy(POD)
    own["spec"]["containers"][0]["resources"]["limits"] = {"memory": "4Gi", "cpu": "1"}
    assert found_with(limits(cpu="2", memory="8Gi"), pod=own).notes == [of_mesh]


def test_containers_of_the_cluster_are_said() -> None:
    """A note names the containers that a program of the cluster adds to the training pods. Nothing
    else would show why a Job whose pods have such a container does not end.
    """

    def add(spec: Json) -> None:
        tolerate(spec)
        spec["containers"] = [{"name": "proxy"}, *spec["containers"], {"name": "log-agent"}]
        # Containers of this kind end with the pod.
        spec["initContainers"] = [{"name": "sidecar", "restartPolicy": "Always"}]

    found = found_with(add)
    assert found.problems == []
    (note,) = found.notes
    assert note.startswith("the cluster adds proxy, log-agent to the containers of each training")

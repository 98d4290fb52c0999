"""What a cluster's rules say of the pod that prepares the data set, which asks for little."""

from collections.abc import Mapping
from typing import Any

from infra.kube.api_server.findings import Findings
from infra.kube.errors import ApiError
from infra.kube.runs.pods_findings import RunPods, pods_findings
from tests.unit.kube.server import ApiServer, Json, api_of

CONTAINER: Json = {"name": "t", "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}}
POD: Json = {"metadata": {}, "spec": {"containers": [CONTAINER]}}
LITTLE: Json = {"requests": {"cpu": "100m", "memory": "256Mi"}}
MINIMUM = "minimum cpu usage per Container is 200m, but request is 100m"
RATIO = "cpu max limit to request ratio per Container is 4, but provided ratio is 40.000000"


class Cluster(ApiServer):
    """A stand-in for a cluster whose LimitRange refuses pods.

    Args:
        words: the words of the API server.
        refused: the refused requests of CPU.
        status: the status of the refusal.
    """

    def __init__(self, words: str, *refused: str, status: int = 403) -> None:
        self._words, self._refused, self._status = words, refused, status
        self.tried = list[str]()

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        if method == "POST":
            assert query == {"dryRun": "All"}
            (container,) = body["spec"]["containers"]
            cpu = container["resources"]["requests"]["cpu"]
            self.tried.append(cpu)
            if cpu in self._refused:
                raise ApiError(self._status, f'pods "disttrain-trial" is forbidden: {self._words}')
            return body
        if path == "/api/v1/nodes":
            status = {"allocatable": {"pods": "9", "cpu": "8", "memory": "32Gi"}}
            return {"items": [{"metadata": {"name": "n"}, "spec": {}, "status": status}]}
        return {"items": []} if path.endswith("/resourcequotas") else None


def found_on(cluster: Cluster, **more: Any) -> Findings:
    run = RunPods("ml", POD, 1, grows=False, dataset_resources=LITTLE, **more)
    return pods_findings(api_of(cluster), run)


def test_least_request_is_named() -> None:
    """If a LimitRange demands larger requests than those of the pod that prepares the data set, the
    run is refused before anything is made. The API server accepts its Job and refuses its pod, so
    `up` would wait for the data set until its time limit.
    """
    (problem,) = found_on(Cluster(MINIMUM, "100m")).problems
    assert problem.startswith("the cluster would refuse the pod that prepares the data set")
    assert "in namespace ml, which requests 100m cpu, 256Mi memory: pods" in problem
    assert MINIMUM in problem
    assert "kubectl -n ml get limitrange" in problem


def test_ratio_of_limits_names_their_settings() -> None:
    """If the limits are too far above these requests, the message names the settings of limits."""
    (problem,) = found_on(Cluster(RATIO, "100m")).problems
    assert "Set a smaller cpuLimitPerRank or memoryLimitPerRank" in problem


def test_refused_training_is_said_once() -> None:
    """If the training pods are refused too, only their message is shown: what is changed for them
    may also change it for the smaller pod.
    """
    cluster = Cluster(MINIMUM, "2", "100m")
    (problem,) = found_on(cluster).problems
    assert problem.startswith("cpuPerRank: the cluster would refuse the training's pods")
    assert cluster.tried == ["2"]


def test_run_without_data_tries_none() -> None:
    """A run that prepares no data set is not refused for a pod that it does not have."""
    assert found_on(Cluster(MINIMUM, "100m"), has_dataset=False).problems == []


def test_used_quota_refuses_no_pod() -> None:
    """A run is not refused because others have used up a quota at the moment."""
    assert found_on(Cluster("exceeded quota: q", "100m")).problems == []

"""A run of StatefulSets in a namespace whose LocalQueue `default` takes in what names no queue.

Kueue then holds back the pods of the StatefulSet or LeaderWorkerSet, and not the object. The API
server is a stand-in here, with objects as Kueue 0.19.2 writes them by its source code.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from infra.kube.errors import ApiError
from infra.kube.queues.await_queue import wait_in_queue
from infra.kube.queues.kueue import is_stopped, steer
from infra.kube.runs.controller_words import words_of_controller
from infra.kube.workload import Workload
from infra.names import QUEUE_LABEL
from tests.unit.kube.runs.gone_run import job
from tests.unit.kube.server import ApiServer, Json, api_of

KUEUE = "/apis/kueue.x-k8s.io"
KINDS = {
    "StatefulSet": ("apps/v1", "statefulsets"),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io/v1", "leaderworkersets"),
}
SUSPEND = {"spec": {"replicas": 0}}
REFUSED = (
    'admission webhook "v{}.kb.io" denied the request: spec.replicas: Forbidden: workload '
    "from previous scale-down is still being deleted"
)
FROZEN = 'admission webhook "validation.gatekeeper.sh" denied the request: [freeze] no new pods'
GATE = {"name": "kueue.x-k8s.io/admission"}
GATED = [
    {"metadata": {"name": f"train-{n}"}, "spec": {"schedulingGates": [GATE]}} for n in (0, 1, 2)
]
WAITS = {
    "type": "QuotaReserved",
    "status": "False",
    "reason": "WaitingForQuota",
    "message": "couldn't assign flavors to pod set main: insufficient unused quota for cpu",
    "lastTransitionTime": "2026-11-23T00:17:49Z",
}


class Cluster(ApiServer):
    """A cluster with a run whose pods wait for quota. It carries out patches."""

    def __init__(self, kind: str) -> None:
        version, self.plural = KINDS[kind]
        about = {"name": "train", "uid": "u1", "labels": {QUEUE_LABEL: "default"}}
        about["namespace"] = "disttrain"
        self.item: Json = {"apiVersion": version, "kind": kind, "metadata": about}
        self.item["spec"] = {"replicas": 3}
        made = {"name": "w", "uid": "w1", "creationTimestamp": "2026-11-23T00:17:49Z"}
        spec = {"queueName": "default", "active": True}
        self.own: Json = {"metadata": made, "spec": spec, "status": {"conditions": [WAITS]}}
        self.refusals = 0  # so often a webhook refuses to let the pods start
        self.words = REFUSED.format(kind.lower())  # what it says; without a change, Kueue's

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        del query
        if path.startswith(KUEUE):
            assert method == "GET", "Kueue's Workload was changed"
            found = [self.own] if path.endswith("/workloads") else []
            return {"items": found, "versions": [{"version": "v1beta2"}]}
        if path == f"/apis/{self.item['apiVersion']}":
            kind = {"name": self.plural, "namespaced": True, "kind": self.item["kind"]}
            return {"resources": [kind]}
        if path.endswith("/train"):
            if method == "PATCH":
                if self.item["spec"]["replicas"] == 0 and self.refusals:
                    self.refusals -= 1
                    raise ApiError(403, self.words)
                self.item["spec"] |= body["spec"]
            return self.item
        return {"items": []}


@pytest.mark.parametrize("kind", KINDS)
def test_run_of_stateful_sets_stops_by_replicas(kind: str) -> None:
    """The run stops and resumes by its number of replicas. If Kueue's Workload were set inactive
    instead, new pods would come at once and wait, so the run would never count as stopped. Kueue
    refuses to resume it until it has deleted the Workload of the former pods.
    """
    cluster = Cluster(kind)
    api = api_of(cluster)
    assert not is_stopped(api, "disttrain", cluster.item, SUSPEND)
    steer(api, "disttrain", cluster.item, SUSPEND, active=False)
    assert cluster.item["spec"] == {"replicas": 0}
    assert is_stopped(api, "disttrain", cluster.item, SUSPEND)
    cluster.refusals = 1
    steer(api, "disttrain", cluster.item, {"spec": {"replicas": 3}}, active=True)
    assert cluster.item["spec"] == {"replicas": 3}


@pytest.mark.parametrize("kind", KINDS)
def test_other_refusals_end_the_resume(kind: str) -> None:
    """Only a refusal of Kueue passes with time. With that of another webhook, such as a policy of
    the cluster, the resume ends at once and says its words.
    """
    cluster = Cluster(kind)
    api = api_of(cluster)
    steer(api, "disttrain", cluster.item, SUSPEND, active=False)
    cluster.refusals, cluster.words = 1, FROZEN
    with pytest.raises(ApiError, match="no new pods"):
        steer(api, "disttrain", cluster.item, {"spec": {"replicas": 3}}, active=True)


@pytest.mark.parametrize("kind", KINDS)
def test_pods_that_kueue_holds_back_have_a_reason(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """While Kueue holds back the pods, the run is not said to have its place, and the reason of its
    missing pods is Kueue's. Once the pods have their place, Kueue has no part in it.
    """
    cluster = Cluster(kind)
    api = api_of(cluster)
    workload = Workload(cluster.item["apiVersion"], kind, "train")
    path = f"/apis/{workload.api_version}/namespaces/disttrain/{cluster.plural}/train"
    assert wait_in_queue(job(), api, workload, path, SUSPEND, 0)
    assert capsys.readouterr().out == ""
    words = words_of_controller(api, "disttrain", cluster.item, GATED, 3)
    assert words == f"in queue default: {WAITS['message']}"
    cluster.own["status"]["conditions"] = [{**WAITS, "type": "Admitted", "status": "True"}]
    assert words_of_controller(api, "disttrain", cluster.item, GATED, 3) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_pods_in_no_queue_have_a_reason(kind: str) -> None:
    """If Kueue is set up to let nothing start that is in no queue, it makes a Workload of the run
    and never lets its pods start. The reason says so, and which setting chooses a queue.
    """
    cluster = Cluster(kind)
    del cluster.item["metadata"]["labels"]
    words = words_of_controller(api_of(cluster), "disttrain", cluster.item, GATED, 3)
    assert "it is in no queue, and Kueue, which shares this cluster out, is set up" in words
    assert "pulumi config set queue NAME" in words
    pods = [{"metadata": {"name": "train-0"}, "spec": {}}] * 3
    assert words_of_controller(api_of(cluster), "disttrain", cluster.item, pods, 3) == ""

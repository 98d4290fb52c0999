"""`status` names a controller that is down, if a run that does not train needs it.

The API server is a table of answers here.
"""

import json
from dataclasses import replace
from typing import Any

import pytest

from cli.status.controllers_down import needs_controllers
from cli.status.screen import as_json, as_text
from infra.kube.api_server.answer import Answer
from infra.kube.controllers.programs_of_runs import DEPLOYMENTS, JOBSET, KUEUE
from infra.kube.record import ALL
from infra.kube.workload import Workload
from infra.names import QUEUE_LABEL
from tests.cli.records import NOW, RECORD
from tests.cli.status.lost_machine import JOB, PODS, Server, run_of, snapshot_of

API_VERSION = "jobset.x-k8s.io/v1alpha2"
JOB_SET = f"/apis/{API_VERSION}/namespaces/disttrain/jobsets/train-jobset"
TRAINS = "step 7/9 loss 2.0 tokens/s 5 mfu - eta 1s\n"
DOWN = (
    "JobSet's controller is down: Deployment jobset-controller in namespace jobset-system has no "
    "available pod (kubectl -n jobset-system get pods)"
)


def deployment(name: str, available: int, namespace: str = "") -> dict[str, Any]:
    """Return a Deployment; Kubernetes leaves out the number of available pods if it is 0."""
    status = {"availableReplicas": available} if available else {}
    about = {"name": name, "namespace": namespace or f"{name.partition('-')[0]}-system"}
    return {"metadata": about, "spec": {"replicas": 1}, "status": status}


class Cluster(Server):
    """A stand-in API server with a run that is a JobSet in a queue of Kueue and has no pods.

    Args:
        deployments: the Deployments by the label selector to which they are an answer; or the HTTP
            status of the refusal to list them, which is 0 if the server does not answer.

    `asked` has the selector of each request for Deployments.
    """

    def __init__(self, deployments: dict[str, list[dict[str, Any]]] | int) -> None:
        super().__init__(1)
        self.deployments, self.asked = deployments, list[str]()
        record = replace(RECORD, workload=Workload(API_VERSION, "JobSet", "train-jobset"))
        kind = {"name": "jobsets", "kind": "JobSet", "namespaced": True}
        self.item: dict[str, Any] = {
            "kind": "JobSet",
            "metadata": {"name": "train-jobset", "uid": "u1", "labels": {QUEUE_LABEL: "gpus"}},
            "spec": {},
            "status": {},
        }
        self.answers |= {
            ALL: {"items": [record.to_object("disttrain")]},
            f"/apis/{API_VERSION}": {"resources": [kind]},
            JOB_SET: self.item,
            PODS: {"items": []},
        }

    def answer(self, path: str, query: dict[str, str], seconds: float | None) -> Answer:
        if path != DEPLOYMENTS:
            return super().answer(path, query, seconds)
        self.asked.append(query["labelSelector"])
        if self.deployments == 0:
            raise OSError("no answer")
        if isinstance(self.deployments, int):
            return Answer(self.deployments, "", json.dumps({"message": "deployments: no"}))
        return Answer(200, "", json.dumps({"items": self.deployments.get(self.asked[-1], [])}))


def found(jobset: list[dict[str, Any]], kueue: list[dict[str, Any]]) -> Any:
    """Return the answers about the Deployments of JobSet, by either selector, and of Kueue."""
    return {JOBSET.selectors[1]: jobset, KUEUE.selectors[0]: kueue}


def test_controller_that_is_down_is_named_with_its_place() -> None:
    """A run that waits shows the controller without an available pod, as text and as JSON. A
    controller that works is not named.
    """
    up = [deployment("kueue-controller-manager", 1)]
    seen = snapshot_of(Cluster(found([deployment("jobset-controller", 0)], up)))
    (run,) = seen.runs
    assert (run.state, run.detail) == ("waiting", f"no pod yet; {DOWN}")
    assert DOWN in as_text(seen.platform, seen.runs, "", NOW)
    assert json.loads(as_json(seen.platform, seen.runs, "", NOW))["runs"][0]["detail"] == run.detail


def test_each_controller_that_is_down_is_named_in_each_namespace() -> None:
    """All that are down are named, and each namespace in which one is installed."""
    several = [deployment("jobset-controller", 0), deployment("jobset", 0, "kubeflow")]
    detail = run_of(Cluster(found(several, [deployment("kueue-manager", 0)]))).detail
    assert "Deployment jobset-controller in namespace jobset-system has no" in detail
    assert "Deployment jobset in namespace kubeflow has no available pod (kubectl -n kube" in detail
    assert "; Kueue's controller is down: Deployment kueue-manager in namespace kueue-s" in detail


@pytest.mark.parametrize(
    "deployments",
    [
        found([], []),
        found([deployment("jobset-controller", 1)], [deployment("kueue-manager", 2)]),
        found([deployment("jobset", 0, "former"), deployment("jobset", 1, "team")], []),
        {JOBSET.selectors[0]: [deployment("jobset", 1, "chart")]}
        | {JOBSET.selectors[1]: [deployment("jobset", 0, "manifests")]},
        403,
        404,
        500,
        0,
    ],
    ids=["none", "up", "up elsewhere", "up by its chart", "403", "404", "500", "no answer"],
)
def test_nothing_is_claimed_of_a_controller_that_may_work(deployments: Any) -> None:
    """The state and its reason are as before if the controller has an available pod in any
    namespace, if no Deployment of it is found, or if the cluster does not show them.
    """
    server = Cluster(deployments)
    run = run_of(server)
    assert (run.state, run.detail) == ("waiting", "no pod yet")
    assert server.asked


def test_controllers_are_asked_for_once_for_all_runs() -> None:
    """Two runs that wait for the same controllers cost no more requests than one."""
    server = Cluster(403)
    (record,) = server.answers[ALL]["items"]
    owner = "99999999-2222-3333-4444-555555555555"
    other = replace(RECORD, owner=owner, workload=Workload(API_VERSION, "JobSet", "train-jobset"))
    server.answers[ALL] = {"items": [record, other.to_object("disttrain")]}
    assert len(snapshot_of(server).runs) == 2
    assert server.asked == [JOBSET.selectors[0], KUEUE.selectors[0]]


def test_run_that_trains_asks_for_no_controller() -> None:
    """A run that trains costs no request for controllers, because it goes on without them."""
    server = Cluster(found([deployment("jobset-controller", 0)], []))
    server.lines = TRAINS
    server.answers[PODS] = {"items": server.pods[:1]}
    run = run_of(server)
    assert (run.state, run.detail, server.asked) == ("training", "", [])


def test_controller_is_named_beside_a_lost_machine() -> None:
    """If the lost machine also had the controller, both are named: the pod cannot come back before
    the controller does.
    """
    server = Cluster({KUEUE.selectors[0]: [deployment("kueue-manager", 0)]})
    server.answers[ALL] = {"items": [RECORD.to_object("disttrain")]}
    server.answers[JOB]["metadata"]["labels"] = {QUEUE_LABEL: "gpus"}
    server.answers["/api/v1/nodes"]["items"][1]["status"]["conditions"][0]["status"] = "Unknown"
    server.answers[PODS] = {"items": server.pods}
    run = run_of(server)
    assert run.state == "stalled"
    assert run.detail.startswith("pod b and 1 more is on node n2, which does not answer")
    assert "; Kueue's controller is down: Deployment kueue-manager" in run.detail
    assert server.asked == [KUEUE.selectors[0]]


@pytest.mark.parametrize("state", ["finished", "failed"])
def test_ended_run_needs_its_controllers_only_to_be_deleted(state: str) -> None:
    """A run that has ended asks for its controllers only while its workload is being deleted, which
    they have to let go.
    """
    assert not needs_controllers(state, {"metadata": {}})
    assert needs_controllers(state, {"metadata": {"deletionTimestamp": "2026-11-22T06:58:00Z"}})


@pytest.mark.parametrize("state", ["training", "saving", "quiet"])
def test_run_with_working_ranks_needs_no_controllers(state: str) -> None:
    """Controllers are not asked for while ranks work, even if the workload is being deleted."""
    assert not needs_controllers(state, {"metadata": {}})
    assert not needs_controllers(state, {"metadata": {"deletionTimestamp": "2026-11-22T06:58:00Z"}})


@pytest.mark.parametrize(
    "state", ["queued", "waiting", "starting", "recovering", "stalled", "failing", "stopped"]
)
def test_run_that_stands_still_needs_its_controllers(state: str) -> None:
    assert needs_controllers(state, {"metadata": {}})

"""What `status` says when some pods of a run could not be made and others are there."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from cli.status.snapshot import see_run
from infra.kube.record import Record
from infra.kube.workload import Workload
from infra.workloads.jobset import API_VERSION
from tests.cli.records import RECORD
from tests.unit.kube.server import ApiServer, Json, api_of

JOB = replace(RECORD, workload=Workload("batch/v1", "Job", "train"))
JOB_SET = replace(RECORD, workload=Workload(API_VERSION, "JobSet", "train"))
OWNER = {"kind": "JobSet", "name": "train", "uid": "u1"}
JOBS = "/apis/batch/v1/namespaces/disttrain/jobs"
OVER = {"conditions": [{"type": "Complete", "status": "True", "message": "done"}]}


def pod(name: str, phase: str = "Running", nodes: str = "2") -> Json:
    """Return a pod of a run of `nodes` pods."""
    container = {"name": "trainer", "env": [{"name": "PET_NNODES", "value": nodes}]}
    metadata = {"name": name, "creationTimestamp": "2026-11-22T06:58:00Z"}
    return {"metadata": metadata, "spec": {"containers": [container]}, "status": {"phase": phase}}


class Quota(ApiServer):
    """A stand-in API server with a quota that has no room for all pods of a run. The controller of
    Jobs says so in an event of the Job u2.

    Args:
        pods: the pods that are there.
        status: the status of the run's workload.
    """

    def __init__(self, pods: list[Json], status: Json) -> None:
        self.pods, self.status = pods, status
        self.asked = list[str]()

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        self.asked.append(path)
        if path == "/apis/batch/v1":
            return {"resources": [{"name": "jobs", "kind": "Job", "namespaced": True}]}
        if path == f"/apis/{API_VERSION}":
            return {"resources": [{"name": "jobsets", "kind": "JobSet", "namespaced": True}]}
        if path.endswith("/train"):
            kind, uid = ("JobSet", "u1") if "jobsets" in path else ("Job", "u2")
            return {"kind": kind, "metadata": {"name": "train", "uid": uid}, "status": self.status}
        if path == JOBS:
            return {"items": [{"metadata": {"name": "j", "uid": "u2", "ownerReferences": [OWNER]}}]}
        if path.endswith("/log"):
            return ""
        if path.endswith("/events"):
            said = {"reason": "FailedCreate", "message": "exceeded quota: team", "metadata": {}}
            return {"items": [said] if "involvedObject.uid=u2," in query["fieldSelector"] else []}
        return {"items": self.pods} if path.endswith("/pods") else None


@pytest.mark.parametrize("record", [JOB, JOB_SET], ids=["job", "jobset"])
@pytest.mark.parametrize(
    "pods", [[], [pod("a")], [pod("a"), pod("b", "Failed")]], ids=["none", "some", "ended"]
)
def test_quota_is_named_beside_pods(record: Record, pods: list[Json]) -> None:
    """`status` names the quota that keeps pods from being made, also if other pods are there.
    Otherwise it would only say `no step yet`.
    """
    told, _ = see_run(api_of(Quota(pods, {})), record)
    assert "FailedCreate: exceeded quota: team" in told.detail


@pytest.mark.parametrize(
    ("pods", "status"),
    [([pod("a"), pod("b")], {}), ([pod("a", nodes="1")], {}), ([pod("a", "Succeeded")], OVER)],
    ids=["all", "the only one", "over"],
)
def test_run_without_missing_pods_asks_nothing(pods: list[Json], status: Json) -> None:
    """`status` reads no events if no pod is missing. The event of a quota that was lifted stays for
    an hour.
    """
    server = Quota(pods, status)
    told, _ = see_run(api_of(server), JOB)
    assert "quota" not in told.detail
    assert not [path for path in server.asked if path.endswith("/events")]

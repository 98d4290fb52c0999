"""`status` says why a run has no pods, when only the events of a Job made for the run have the
reason.

The API server is a table of answers here.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cli.status.snapshot import see_run
from infra.kube.workload import Workload
from tests.cli.records import RECORD
from tests.unit.kube.server import ApiServer, Json, api_of

JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2"
REFUSED = 'pods "train-nodes-0-0" is forbidden: exceeded quota: team'


class Cluster(ApiServer):
    """A stand-in API server with a JobSet whose Job may not make its pod because of a quota."""

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        owner = {"kind": "JobSet", "name": "train", "uid": "u1"}
        job = {"metadata": {"name": "train-nodes-0", "uid": "u2", "ownerReferences": [owner]}}
        kind = {"name": "jobsets", "kind": "JobSet", "namespaced": True}
        event = {
            "reason": "FailedCreate",
            "message": REFUSED,
            "lastTimestamp": "2026-11-26T12:00:02Z",
        }
        of_job = query.get("fieldSelector", "").startswith("involvedObject.uid=u2,")
        return {
            JOB_SETS: {"resources": [kind]},
            f"{JOB_SETS}/namespaces/disttrain/jobsets/train": {
                "apiVersion": "jobset.x-k8s.io/v1alpha2",
                "kind": "JobSet",
                "metadata": {"name": "train", "uid": "u1"},
                "spec": {"suspend": False},
            },
            "/apis/batch/v1/namespaces/disttrain/jobs": {"items": [job]},
            "/api/v1/namespaces/disttrain/pods": {"items": []},
            "/api/v1/namespaces/disttrain/events": {"items": [event] if of_job else []},
        }.get(path)


def test_status_reads_events_of_jobsets_job() -> None:
    """`status` repeats the reason from the events of the JobSet's Job. Otherwise it would only say
    `no pod yet`, and only `pulumi up` would name the quota.
    """
    workload = Workload("jobset.x-k8s.io/v1alpha2", "JobSet", "train")
    record = replace(RECORD, workload=workload, suspend={"spec": {"suspend": True}})
    api = api_of(Cluster())
    api.now = lambda: record.since
    status, _ = see_run(api, record)
    assert status.state == "waiting"
    assert status.detail.endswith(f"FailedCreate: {REFUSED} (12:00:02)"), status.detail

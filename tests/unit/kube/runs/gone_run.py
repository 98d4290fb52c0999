"""A stand-in for the API server of a cluster in which the workload of a run is gone, and the jobs
of tasks that tests run with it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast

from infra.kube.api_server.access import Access
from infra.kube.errors import ApiError
from infra.kube.job import Job
from infra.kube.record import Record, Ttl, parse_record, record_path
from infra.kube.runs import hand_over
from infra.kube.runs.gone_pod import Asker
from infra.kube.runs.hand_over_plan import Plan
from infra.kube.workload import Workload
from tests.cli.records import NOW, RECORD
from tests.unit.kube.server import ApiServer, api_of

TTL = Ttl(3600, "image", "claim", "/data/runs/dev", {"nodeSelector": {"disk": "big"}})
ASKER = Asker("image", "claim", {})
"""The stack of the run itself, whose pods have nothing that is unusual."""
GONE = replace(RECORD, ttl=TTL, workload=Workload("batch/v1", "Job", "train-indexed"))
OTHER_JOB = "train-other"
OTHER = replace(
    RECORD,
    owner="99999999-2222-3333-4444-555555555555",
    stack="organization/disttrain/other",
    workload=Workload("batch/v1", "Job", OTHER_JOB),
)


class Server(ApiServer):
    """A cluster with the record of a run but without its workload.

    A pod that reads the volume says how the run ended.

    Args:
        record: the record of the run.
        state: the state that the pod reports: `finished`, `failed` or empty.
        words: the text that the pod has read beside the state.
        at: when the run wrote that text.
        other: the record of another run, which trains; None: there is none.
    """

    def __init__(
        self,
        record: Record,
        state: str,
        words: str = "",
        at: datetime = NOW,
        other: Record | None = None,
    ) -> None:
        self.record = record.to_object(record.namespace)
        self.record["metadata"]["resourceVersion"] = "7"
        self.said = json.dumps({"state": state, "words": words, "at": at.isoformat()})
        self.pods = list[Any]()
        self.phase = "Succeeded"  # the phase of the pod that reads the volume
        self.note_status = 200  # the status with which a change of the record is answered
        self.workload: Any = None
        self.lease: Any = None
        self.other = other.to_object(other.namespace) if other else None
        self.changes_of_other = list[Any]()

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        del query
        if path == record_path(GONE.namespace, GONE.owner):
            if method == "PATCH" and self.note_status != 200:
                raise ApiError(self.note_status, "no")
            if method == "PATCH":
                self._merge(body)
            if method == "PUT":
                self.record = body
            return self.record
        if self.other and path.endswith((self.other["metadata"]["name"], OTHER_JOB)):
            if method == "PATCH":
                self.changes_of_other.append(body)
            metadata = {"name": OTHER_JOB, "labels": self.other["metadata"]["labels"]}
            job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {}}
            return job if path.endswith(OTHER_JOB) else self.other
        if path.endswith("/jobs/train-indexed") and self.workload:
            return self.workload
        if path.endswith("/pods") and method == "POST":
            self.pods.append(body)
            return body
        if path.endswith("/log"):
            return self.said + "\n"
        if "/pods/" in path:
            name = path.rpartition("/")[2]
            return {"metadata": {"name": name}, "status": {"phase": self.phase}}
        if path.endswith(("/pods", "/configmaps")):
            records = [self.record, *([self.other] if self.other else [])]
            return {"items": records if path.endswith("maps") else []}
        if path in ("/apis/batch/v1", "/api/v1"):
            kinds = [{"kind": "Job", "name": "jobs", "namespaced": True}]
            return {"resources": kinds}
        if path == f"/api/v1/namespaces/{GONE.namespace}":
            return {"metadata": {"name": GONE.namespace, "uid": "n"}}
        if "/leases" in path:
            self.lease = body if method in ("POST", "PUT") else self.lease
            return self.lease
        return None

    def _merge(self, body: Any) -> None:
        about = self.record["metadata"]
        annotations = about["annotations"] | body.get("metadata", {}).get("annotations", {})
        about["annotations"] = {key: text for key, text in annotations.items() if text is not None}
        about["resourceVersion"] += "1"
        self.record["data"] |= body.get("data", {})

    def now(self) -> Record:
        """Return the run's record as the server has it now."""
        return parse_record(self.record)


AWAIT = {
    "workload": GONE.workload.to_json(),
    "uid": "u1",
    "revision": GONE.revision,
    "pods": 1,
    "done": ["Complete"],
    "failed": ["Failed"],
    "timeout_seconds": 5,
    "own": vars(ASKER),
}


def job(**fields: Any) -> Job:
    """Return the job of a task of this run, with these fields."""
    return Job(Access(kubeconfig="{}"), GONE.namespace, GONE.owner, GONE.stack, fields)


HAND_OVER = {
    "workload": GONE.workload.to_json(),
    "revision": GONE.revision,
    "gpus": 4,
    "gpus_total": 4,
    "suspend": GONE.suspend,
    "resume": GONE.resume,
    "done": ["Complete"],
    "failed": ["Failed"],
    "when_busy": "replace",
    "request": "again",
    "grace_seconds": 5,
    "wait_timeout_seconds": 0,
    "platform_stack": GONE.stack,
    "ttl": vars(TTL),
}


def hand_over_of(server: Server, check: Callable[[], None] = lambda: None, **changes: Any) -> None:
    """Run the hand-over of this run with the fields of `HAND_OVER`, of which `changes` replaces
    some. `check` stands in for the check of its lock, which no other process ever takes.
    """
    given = job(**{**HAND_OVER, **changes})
    lock = cast(Any, SimpleNamespace(check=check))
    hand_over._hand_over(given, api_of(server), Plan.of(given), lock)

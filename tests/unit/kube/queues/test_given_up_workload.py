"""How a run is resumed that Kueue itself has set inactive. Kueue never takes such a Workload back.

The API server is a stand-in here; tests/kube and tests/e2e have a real one, and a real Kueue.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from infra.kube.errors import ApiError, TaskError
from infra.kube.queues.kueue import is_given_up, steer
from tests.unit.kube.server import ApiServer, api_of

GROUP = "/apis/kueue.x-k8s.io"
PATH = f"{GROUP}/v1beta2/namespaces/ml/workloads"
BY_KUEUE = "DeactivatedDueToRequeuingLimitExceeded"
LABELS = {"kueue.x-k8s.io/queue-name": "gpus"}
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "uid": "u1", "labels": LABELS},
}


def workload(reason: str, status: str = "False") -> dict[str, Any]:
    requeued = {"type": "Requeued", "status": status, "reason": reason}
    metadata = {"name": "job-train", "uid": "w1"}
    spec = {"active": False}
    return {"metadata": metadata, "spec": spec, "status": {"conditions": [requeued]}}


class Kueue(ApiServer):
    """Stands in for a cluster with one Workload that is inactive for the given reason.

    Args:
        reason: the reason of its condition `Requeued`.
        may_delete: whether these credentials may delete the Workload.
    """

    def __init__(self, reason: str, *, may_delete: bool = True) -> None:
        self.workloads, self.may_delete = [workload(reason)], may_delete
        self.changes: list[tuple[str, str, Any]] = []

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        del query
        if method == "GET":
            versions = {"versions": [{"version": "v1beta2"}]}
            kinds = {"resources": [{"name": "jobs", "namespaced": True, "kind": "Job"}]}
            return {GROUP: versions, "/apis/batch/v1": kinds}.get(path, {"items": self.workloads})
        self.changes.append((method, path, body))
        if method == "DELETE":
            if not self.may_delete:
                raise ApiError(403, "no")
            self.workloads = []
        return {}


def resume(kueue: Kueue) -> None:
    steer(api_of(kueue), "ml", JOB, {"spec": {"suspend": False}}, active=True)


def test_workload_that_kueue_has_given_up_is_made_again() -> None:
    """Resuming a run deletes the Workload that Kueue itself has set inactive, and no newer Workload
    of the same name. Kueue then makes a new one, which is in the queue.
    """
    resume(kueue := Kueue(BY_KUEUE))
    ((method, path, body),) = kueue.changes
    assert (method, path) == ("DELETE", f"{PATH}/job-train")
    assert body["preconditions"] == {"uid": "w1"}  # a newer Workload of this name stays


def test_workload_that_people_have_stopped_is_set_active() -> None:
    """A Workload that people have set inactive is not deleted but set active. One that Kueue has
    set inactive and then put back into its queue is not deleted either.
    """
    resume(kueue := Kueue("Deactivated"))
    assert kueue.changes == [("PATCH", f"{PATH}/job-train", {"spec": {"active": True}})]
    assert not is_given_up(workload(BY_KUEUE, "True"))  # it is in its queue again


def test_whoever_may_not_delete_it_is_told_what_to_ask_for() -> None:
    """A user who may not delete the Workload gets the command that somebody else has to run."""
    with pytest.raises(TaskError) as refused:
        resume(Kueue(BY_KUEUE, may_delete=False))
    assert "kubectl delete workloads.kueue.x-k8s.io -n ml job-train" in str(refused.value)

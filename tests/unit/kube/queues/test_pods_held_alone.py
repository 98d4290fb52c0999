"""A run of a kind that Kueue does not watch, each of whose pods Kueue holds back by itself.

Kueue's own configuration has pods, but neither PyTorchJobs nor Volcano's Jobs. The API server is a
stand-in here, with objects as Kueue 0.19.2 writes them by its source code.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from infra.kube.errors import ApiError
from infra.kube.runs.controller_words import words_of_controller
from infra.names import QUEUE_LABEL
from tests.unit.kube.server import ApiServer, Json, api_of

WAITS = {
    "type": "QuotaReserved",
    "status": "False",
    "reason": "Pending",
    "message": "couldn't assign flavors to pod set main: insufficient unused quota for cpu",
    "lastTransitionTime": "2026-11-23T00:17:49Z",
}
OWN: Json = {
    "metadata": {"name": "w", "uid": "w1", "creationTimestamp": "2026-11-23T00:17:49Z"},
    "spec": {"queueName": "default", "active": True},
    "status": {"conditions": [WAITS]},
}
KINDS = {"PyTorchJob": "kubeflow.org/v1", "Job": "batch.volcano.sh/v1alpha1"}
NAMES = {"PyTorchJob": "objects of kind PyTorchJob", "Job": "Volcano's Jobs"}
ALONE = "Kueue does not watch {}, and holds back each of their pods by itself"


class Kueue(ApiServer):
    """A stand-in for a cluster with a Kueue that has made a Workload for the pod `p1`."""

    def __init__(self, *, may_read: bool = True) -> None:
        self.may_read = may_read

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        if path == "/apis/kueue.x-k8s.io":
            return {"versions": [{"version": "v1beta2"}]}
        if path.endswith("/workloads"):
            if not self.may_read:
                raise ApiError(403, "workloads is forbidden")
            is_of_pod = query.get("labelSelector") == "kueue.x-k8s.io/job-uid=p1"
            return {"items": [OWN] if is_of_pod else []}
        return {"items": []}


def words(kind: str, uid: str = "p1", queue: str = "default", *, may_read: bool = True) -> str:
    """Return why the run's pod, which has a gate of Kueue, does not start."""
    item: Json = {
        "apiVersion": KINDS[kind],
        "kind": kind,
        "metadata": {"name": "train", "uid": "u1"},
        "status": {"state": {"phase": "Running"}},
    }
    about = {"name": "train-0", "uid": uid, "labels": {QUEUE_LABEL: queue} if queue else {}}
    pod: Json = {"metadata": about, "spec": {"schedulingGates": [{"name": "kueue"}]}}
    return words_of_controller(api_of(Kueue(may_read=may_read)), "team", item, [pod], 1)


@pytest.mark.parametrize("kind", KINDS)
def test_pod_that_waits_for_its_own_quota_says_so(kind: str) -> None:
    """The reason of a pod that waits in a queue by itself is Kueue's, and the text says why it
    waits alone. Otherwise `up` would only say that the pod has a scheduling gate.
    """
    said = words(kind)
    assert said.startswith(f"pod train-0 waits in queue default: {WAITS['message']}. ")
    assert ("integrations.frameworks" in said) == (kind == "PyTorchJob")
    assert ALONE.format(NAMES[kind]) in said


@pytest.mark.parametrize("kind", KINDS)
def test_pod_in_no_queue_says_that_it_never_starts(kind: str) -> None:
    """If Kueue lets nothing start that is in no queue, its Workload of the pod waits forever."""
    said = words(kind, queue="")
    assert said.startswith("pod train-0 is in no queue of Kueue, and never starts. ")
    assert ALONE.format(NAMES[kind]) in said


@pytest.mark.parametrize("kind", KINDS)
def test_gate_of_another_program_is_not_kueues(kind: str) -> None:
    """Nothing is said of Kueue if it has made no Workload of the pod, or none that may be read."""
    assert words(kind, uid="p2") == ""
    assert words(kind, may_read=False) == ""

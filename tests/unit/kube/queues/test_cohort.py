"""Who holds the quota of a queue whose ClusterQueue shares it with others (a cohort of Kueue)."""

from collections.abc import Mapping
from typing import Any

import pytest

from infra.kube.errors import ApiError
from infra.kube.queues.queue_look import waiting
from infra.names import QUEUE_LABEL
from tests.unit.kube.server import ApiServer, Json, api_of

RUN: Json = {
    "metadata": {"name": "train", "uid": "1", "labels": {QUEUE_LABEL: "gpus"}},
    "spec": {"suspend": True},
}
TAKEN = "insufficient unused quota for nvidia.com/gpu in flavor any, 2 more needed"


def workload(name: str, namespace: str, team: str = "", message: str = TAKEN) -> Json:
    """With a place in a ClusterQueue, or without."""
    has = "True" if team else "False"
    conditions = [{"type": "QuotaReserved", "status": has, "message": "" if team else message}]
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-11-23T00:17:49Z",
            "ownerReferences": [{"kind": "Job", "name": name}],
        },
        "spec": {"queueName": "gpus"},
        "status": {"conditions": conditions, "admission": {"clusterQueue": team}},
    }


class Kueue(ApiServer):
    """Three ClusterQueues, of which two lend each other their quota.

    Args:
        version: of Kueue's objects.
        workloads: all that there are; the first one is the run's.
        may: whether ClusterQueues may be listed.
    """

    def __init__(self, version: str, *workloads: Json, may: bool = True) -> None:
        self.version, self.workloads, self.may = version, workloads, may
        self.asked = 0

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any
    ) -> Json | str | None:
        if path == "/apis/kueue.x-k8s.io":
            return {"versions": [{"version": self.version}]}
        if path.endswith("/workloads"):
            return {"items": self.workloads[:1] if query else self.workloads}
        if path.endswith("/localqueues"):
            about = {"name": "gpus", "namespace": "ml"}
            return {"items": [{"metadata": about, "spec": {"clusterQueue": "ours"}}]}
        assert path.endswith("/clusterqueues")
        self.asked += 1
        if not self.may:
            raise ApiError(403, "forbidden")
        key = "cohortName" if self.version == "v1beta2" else "cohort"
        teams = {"ours": {key: "all"}, "theirs": {key: "all"}, "alone": {}}
        return {"items": [{"metadata": {"name": n}, "spec": spec} for n, spec in teams.items()]}


def words(kueue: Kueue) -> str:
    found = waiting(api_of(kueue), "ml", RUN)
    assert found
    return found.words


OWN = workload("train", "ml")
BORROWER, STRANGER = workload("bert", "nlp", "theirs"), workload("yolo", "cv", "alone")


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
def test_borrower_of_the_quota_is_named(version: str) -> None:
    """Nobody was named where another team had borrowed the quota of the run's own ClusterQueue."""
    kueue = Kueue(version, OWN, BORROWER, STRANGER)
    assert words(kueue).endswith(f"{TAKEN}; held by Job bert in namespace nlp (priority 0)")
    hidden = Kueue(version, OWN, BORROWER, STRANGER, may=False)
    assert words(hidden).endswith(TAKEN)


def test_cohort_is_asked_last_of_all() -> None:
    """Where somebody of the own ClusterQueue holds the quota, and where it is not taken at all, no
    further question is asked."""
    ours = workload("gpt", "ml", "ours")
    kueue = Kueue("v1beta2", OWN, BORROWER, ours)
    assert words(kueue).endswith("held by Job gpt in namespace ml (priority 0)")
    assert kueue.asked == 0
    kueue = Kueue("v1beta2", workload("train", "ml", message="ClusterQueue is stopped"), BORROWER)
    assert words(kueue).endswith("ClusterQueue is stopped")
    assert kueue.asked == 0

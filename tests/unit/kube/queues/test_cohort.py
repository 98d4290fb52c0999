"""Who is named as the holder of a run's quota if ClusterQueues share their quota (Kueue's
cohort).
"""

from collections.abc import Mapping
from typing import Any

import pytest

from infra.kube.errors import ApiError
from infra.kube.queues.queue_findings import waiting
from infra.names import QUEUE_LABEL
from tests.unit.kube.server import ApiServer, Json, api_of

RUN: Json = {
    "metadata": {"name": "train", "uid": "1", "labels": {QUEUE_LABEL: "gpus"}},
    "spec": {"suspend": True},
}
TAKEN = "insufficient unused quota for nvidia.com/gpu in flavor any, 2 more needed"


def workload(name: str, namespace: str, team: str = "", message: str = TAKEN) -> Json:
    """Return a Workload with quota in the ClusterQueue `team`; without a team, one that waits for
    quota.
    """
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
    """Stands in for a cluster with three ClusterQueues, of which two share their quota.

    Args:
        version: the version of Kueue's objects.
        workloads: all Workloads; the first one is that of the run.
        may: whether these credentials may list ClusterQueues.
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
    """Return what is said of the run that waits."""
    found = waiting(api_of(kueue), "ml", RUN)
    assert found
    return found.words


OWN = workload("train", "ml")
BORROWER, STRANGER = workload("bert", "nlp", "theirs"), workload("yolo", "cv", "alone")


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
def test_borrower_of_the_quota_is_named(version: str) -> None:
    """A run that waits because another ClusterQueue has borrowed its quota names the borrower's
    run. If the credentials may not list ClusterQueues, nobody is named.
    """
    kueue = Kueue(version, OWN, BORROWER, STRANGER)
    assert words(kueue).endswith(f"{TAKEN}; held by Job bert in namespace nlp (priority 0)")
    hidden = Kueue(version, OWN, BORROWER, STRANGER, may=False)
    assert words(hidden).endswith(TAKEN)


def test_cohort_is_asked_last_of_all() -> None:
    """ClusterQueues are listed only if the quota is taken and nobody in the run's own ClusterQueue
    holds it. In all other cases the request would be useless.
    """
    ours = workload("gpt", "ml", "ours")
    kueue = Kueue("v1beta2", OWN, BORROWER, ours)
    assert words(kueue).endswith("held by Job gpt in namespace ml (priority 0)")
    assert kueue.asked == 0
    kueue = Kueue("v1beta2", workload("train", "ml", message="ClusterQueue is stopped"), BORROWER)
    assert words(kueue).endswith("ClusterQueue is stopped")
    assert kueue.asked == 0

"""A TrainJob that has its place in a queue, and that Kueue cannot start, because Trainer is
too old for that Kueue.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from infra.kube.queues.queue_findings import waiting
from infra.names import QUEUE_LABEL
from tests.unit.kube.server import ApiServer, Json, api_of

GROUP = "/apis/kueue.x-k8s.io"
OWN: Json = {
    "metadata": {
        "name": "trainjob-train-1",
        "uid": "w1",
        "creationTimestamp": "2026-11-23T00:00:00Z",
    },
    "spec": {"queueName": "gpus", "active": True},
    "status": {
        "conditions": [
            {"type": "QuotaReserved", "status": "True"},
            {"type": "Admitted", "status": "True", "lastTransitionTime": "2026-11-23T00:17:49Z"},
        ]
    },
}


class Kueue(ApiServer):
    """A stand-in for a cluster with a Kueue that has admitted the run."""

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        if path == GROUP:
            return {"versions": [{"version": "v1beta2"}]}
        return {"items": [OWN] if path.endswith("/workloads") else []}


def suspended(kind: str, **spec: object) -> Json:
    metadata = {"name": "train", "uid": "u1", "labels": {QUEUE_LABEL: "gpus"}}
    return {"kind": kind, "metadata": metadata, "spec": {"suspend": True, **spec}}


def test_trainjob_that_kueue_cannot_start_says_so() -> None:
    """Kueue writes what it has chosen for the pods into a field that Trainer 2.1 does not have, and
    reports only in its own log that it cannot start the TrainJob. So the text names the versions.
    """
    place = waiting(api_of(Kueue()), "team", suspended("TrainJob"))
    assert place
    assert place.words.startswith("in queue gpus: it has its place, but is not started")
    assert "Trainer 2.2 or newer" in place.words
    assert place.since
    assert not place.never


@pytest.mark.parametrize(
    "item",
    [
        suspended("TrainJob", runtimePatches=[{"manager": "kueue.x-k8s.io/manager"}]),
        suspended("TrainJob", podTemplateOverrides=[{}]),
        suspended("TrainJob", suspend=False),
        suspended("Job"),
    ],
)
def test_run_that_kueue_can_start_waits_for_nothing(item: Json) -> None:
    """A TrainJob with Kueue's field, one that was started, and another kind wait for nothing."""
    assert waiting(api_of(Kueue()), "team", item) is None

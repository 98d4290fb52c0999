"""When `disttrain logs` takes a run for over, whose pods have ended."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from cli.logs import run_end
from cli.logs.run_end import is_over
from infra.kube.errors import ApiError, TaskError
from infra.names import QUEUE_LABEL
from tests.cli.records import RECORD
from tests.unit.kube.server import ApiServer, api_of


class Workload(ApiServer):
    """A stand-in API server that answers with this workload, or refuses with this status."""

    def __init__(self, answer: dict[str, Any] | int) -> None:
        self._said = answer

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any
    ) -> dict[str, Any] | None:
        if path == "/apis/batch/v1":
            return {"resources": [{"name": "jobs", "kind": "Job", "namespaced": True}]}
        if path == "/apis/kueue.x-k8s.io":
            return None
        assert path.endswith("/jobs/train-singlepod")
        if isinstance(self._said, int):
            raise ApiError(self._said, "refused")
        return self._said


def job(condition: str = "", *, suspend: bool = False, queue: str = "") -> dict[str, Any]:
    """Return a Job with this true condition, or none if it is empty, in this queue of Kueue."""
    conditions = [{"type": condition, "status": "True"}] if condition else []
    return {
        "metadata": {"labels": {QUEUE_LABEL: queue} if queue else {}},
        "spec": {"suspend": suspend},
        "status": {"conditions": conditions},
    }


@pytest.mark.parametrize(
    ("answer", "over"),
    [
        (job(), False),
        (job("FailureTarget"), False),
        (job("Complete"), True),
        (job("Failed"), True),
        (job(suspend=True), True),
        (job(suspend=True, queue="gpus"), False),
        (404, True),
        (403, True),
    ],
    ids=["runs", "fails-soon", "finished", "failed", "suspended", "queued", "gone", "forbidden"],
)
def test_run_is_over_when_no_pod_will_come(
    answer: dict[str, Any] | int, over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is over when it has finished, failed, is stopped or gone, or may not be read. A run in
    a queue is suspended too, but by Kueue, which starts it later.
    """
    monkeypatch.setattr(run_end, "find_record", lambda *_: RECORD)
    api = api_of(Workload(answer))
    assert is_over(api, RECORD.namespace, RECORD.owner) == over


def test_run_that_is_about_to_be_made_is_not_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pulumi up` writes the record of a run some seconds before it makes the workload."""
    api = api_of(Workload(404))
    young = replace(RECORD, since=api.now())
    monkeypatch.setattr(run_end, "find_record", lambda *_: young)
    assert not is_over(api, RECORD.namespace, RECORD.owner)


def test_run_without_a_record_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be waited for without a record."""

    def refuse(*_: object) -> None:
        raise TaskError("no run of this stack")

    monkeypatch.setattr(run_end, "find_record", refuse)
    assert is_over(api_of(Workload(404)), RECORD.namespace, RECORD.owner)

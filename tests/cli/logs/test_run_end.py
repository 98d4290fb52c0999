"""When `disttrain logs` takes a run for over, whose pods have ended."""

from collections.abc import Mapping
from typing import Any

import pytest

from cli.logs import run_end
from cli.logs.run_end import is_over
from infra.kube.errors import ApiError, TaskError
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
        assert path.endswith("/jobs/train-singlepod")
        if isinstance(self._said, int):
            raise ApiError(self._said, "refused")
        return self._said


def job(condition: str = "", *, suspend: bool = False) -> dict[str, Any]:
    """Return a Job with this true condition; with none if it is empty."""
    conditions = [{"type": condition, "status": "True"}] if condition else []
    return {"spec": {"suspend": suspend}, "status": {"conditions": conditions}}


@pytest.mark.parametrize(
    ("answer", "over"),
    [
        (job(), False),
        (job("FailureTarget"), False),
        (job("Complete"), True),
        (job("Failed"), True),
        (job(suspend=True), True),
        (404, True),
        (403, True),
    ],
    ids=["runs", "fails-soon", "finished", "failed", "suspended", "gone", "forbidden"],
)
def test_run_is_over_when_no_pod_will_come(
    answer: dict[str, Any] | int, over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is over when it has finished, failed, is suspended or gone, or may not be read."""
    monkeypatch.setattr(run_end, "find_record", lambda *_: RECORD)
    api = api_of(Workload(answer))
    assert is_over(api, RECORD.namespace, RECORD.owner) == over


def test_run_without_a_record_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be waited for without a record."""

    def refuse(*_: object) -> None:
        raise TaskError("no run of this stack")

    monkeypatch.setattr(run_end, "find_record", refuse)
    assert is_over(api_of(Workload(404)), RECORD.namespace, RECORD.owner)

"""What `up` does with a run in a queue if the credentials may not read Kueue's Workloads.

The API server is a stand-in here, which forbids that as a real one does.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from infra.kube import waiting
from infra.kube.errors import ApiError, TaskError
from infra.kube.queues.await_queue import queue_place
from infra.kube.runs import await_ready
from infra.names import QUEUE_LABEL
from tests.cli.records import RECORD
from tests.unit.kube.runs.gone_run import AWAIT, GONE, Server, job
from tests.unit.kube.server import api_of

GROUP = "/apis/kueue.x-k8s.io"
FORBIDDEN = 'workloads.kueue.x-k8s.io is forbidden: User "ann" cannot list resource "workloads"'


class Blind(Server):
    """A cluster with a run in the queue `default`, which has the label that Kueue's webhook adds.

    Args:
        suspended: whether the run waits for its place.
        status: the status with which a look at the Workloads is answered.
    """

    def __init__(self, *, suspended: bool, status: int = 403) -> None:
        super().__init__(replace(RECORD, workload=GONE.workload), "")
        self.workload = {
            "metadata": {"uid": "u1", "labels": {QUEUE_LABEL: "default"}},
            "spec": {"suspend": suspended},
            "status": {},
        }
        self.status = status

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        if path == GROUP:
            return {"versions": [{"version": "v1beta2"}]}
        if path.startswith(GROUP):
            raise ApiError(self.status, FORBIDDEN)
        if path.endswith("/pods") and not self.workload["spec"]["suspend"]:
            ready = [{"type": "Ready", "status": "True"}]
            status = {"phase": "Running", "conditions": ready}
            pod = {"spec": {"nodeName": "n1"}, "metadata": {"name": "p"}, "status": status}
            return {"items": [pod]}
        return super().answer(method, path, query, body)


@pytest.fixture(autouse=True)
def own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the clock of the waits by one that advances only when they sleep."""
    clock = Blind(suspended=False)
    monkeypatch.setattr(waiting, "time", clock)
    monkeypatch.setattr("infra.kube.queues.await_queue.time", clock)


def said_by_up(server: Server, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what `up` prints while it waits for the run."""
    await_ready.create(job(**AWAIT), api_of(server))
    return capsys.readouterr().out


def test_run_that_trains_does_not_fail(capsys: pytest.CaptureFixture[str]) -> None:
    """`up` ends well for a run that trains, and its output says what could not be read. Otherwise a
    mere look would end `up` with an error after everything was made.
    """
    said = said_by_up(Blind(suspended=False), capsys)
    assert "all ranks have stepped: 1 of 1 pods are ready" in said
    place = queue_place(said, "")
    assert "Job train-indexed has its place in queue default, as it is not suspended" in place
    assert FORBIDDEN in place


def test_run_that_waits_does_not_fail(capsys: pytest.CaptureFixture[str]) -> None:
    """`up` ends well for a run that is still suspended in its queue, and its output says what could
    not be read. Kueue suspends each run until it has looked at it.
    """
    said = said_by_up(Blind(suspended=True), capsys)
    assert "Job train-indexed waits in queue default; what it waits for may not be read: " in said
    assert FORBIDDEN in queue_place(said, "")


@pytest.mark.parametrize("suspended", [True, False])
def test_other_refusals_are_said(suspended: bool) -> None:
    """An error other than a missing right ends `up`, for example if the request itself was
    wrong.
    """
    with pytest.raises((ApiError, TaskError), match="is forbidden"):
        await_ready.create(job(**AWAIT), api_of(Blind(suspended=suspended, status=422)))

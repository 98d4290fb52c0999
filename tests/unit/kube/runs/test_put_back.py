"""The `pulumi up` of a run in a queue of Kueue that loses its place before its first step."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from infra.kube import waiting
from infra.kube.errors import TaskError
from infra.kube.queues import await_queue
from infra.kube.runs import await_ready
from infra.names import QUEUE_LABEL
from tests.cli.records import RECORD
from tests.unit.kube.runs.gone_run import AWAIT, GONE, Server, job
from tests.unit.kube.server import Json, api_of

GROUP = "/apis/kueue.x-k8s.io"
SINCE = "2026-11-23T00:17:49Z"


class PutBack(Server):
    """A stand-in for a cluster with a run that Kueue starts, preempts, and starts again. Then its
    pod becomes ready.

    Args:
        preempted: the second at which Kueue preempts it.
        until: the second at which it has its place again.
    """

    def __init__(self, preempted: float, until: float) -> None:
        super().__init__(replace(RECORD, workload=GONE.workload), "")
        self.preempted, self.until = preempted, until

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        waits = self.preempted <= self.seconds < self.until
        if path.endswith("/jobs/train-indexed"):
            about = {"uid": "u1", "name": "train-indexed", "labels": {QUEUE_LABEL: "gpus"}}
            return {"kind": "Job", "metadata": about, "spec": {"suspend": waits}, "status": {}}
        if path == GROUP:
            return {"versions": [{"version": "v1beta2"}]}
        if path.endswith("/workloads"):
            return {"items": [_workload(waits=waits)]}
        if path.startswith(GROUP):
            return {"items": []}
        if path.endswith("/pods") and self.seconds >= self.until:
            ready = [{"type": "Ready", "status": "True"}]
            status = {"phase": "Running", "conditions": ready}
            pod = {"metadata": {"name": "p"}, "spec": {"containers": []}, "status": status}
            return {"items": [pod]}
        return super().answer(method, path, query, body)


def _workload(*, waits: bool) -> Json:
    states = {"QuotaReserved": not waits, "Admitted": not waits, "Evicted": waits}
    conditions = [
        {
            "type": type_,
            "status": str(state),
            "reason": "Preempted",
            "message": "no quota",
            "lastTransitionTime": SINCE,
        }
        for type_, state in states.items()
    ]
    about = {"name": "w", "uid": "w", "namespace": "disttrain", "creationTimestamp": SINCE}
    return {"metadata": about, "spec": {"active": True}, "status": {"conditions": conditions}}


def come_up(server: PutBack, monkeypatch: pytest.MonkeyPatch, **fields: object) -> None:
    """Run the wait of `pulumi up`, which gives the pods 100 seconds."""
    for module in (waiting, await_queue, await_ready):
        monkeypatch.setattr(module, "time", server)
    await_ready.create(job(**{**AWAIT, "timeout_seconds": 100, **fields}), api_of(server))


def test_up_that_waits_for_the_place_does_so_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `whenBusy: wait`, `up` waits again for the place of a run that was put back into its
    queue. The time in the queue does not count against the limit for the pods. Otherwise `up` would
    end and advise a setting that is already set.
    """
    server = PutBack(preempted=10, until=400)
    come_up(server, monkeypatch, queue_seconds=1000)
    said = capsys.readouterr().out
    assert "for Job train-indexed to get its place in the queue; in queue gpus: it was put" in said
    assert "all ranks have stepped: 1 of 1 pods are ready" in said
    assert "whenBusy" not in said


def test_all_time_in_the_queue_has_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """All waits for the place in the queue together have one limit, because the engine waits no
    longer than that.
    """
    server = PutBack(preempted=10, until=86400)
    with pytest.raises(TaskError, match="whenBusyTimeoutSeconds"):
        come_up(server, monkeypatch, queue_seconds=300)
    assert 300 <= server.seconds < 330


def test_up_that_does_not_wait_ends_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without `whenBusy: wait`, `up` ends well if the run was put back into its queue, and says
    so.
    """
    come_up(PutBack(preempted=10, until=400), monkeypatch)
    assert "(whenBusy: wait makes `pulumi up` wait for that)" in capsys.readouterr().out

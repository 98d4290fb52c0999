"""A run that is suspended while its `pulumi up` waits for the first step.

tests/e2e/test_beside_first_up.py types the commands; tests/kube/test_await.py has a real API
server.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from infra.kube import waiting
from infra.kube.errors import TaskError
from infra.kube.names import SUSPENDED_BY_ANNOTATION
from infra.kube.runs import await_ready
from infra.kube.runs.steer import find_record, stop
from infra.names import QUEUE_LABEL
from tests.cli.records import RECORD
from tests.unit.kube.runs.gone_run import AWAIT, GONE, Server, job
from tests.unit.kube.server import Json, api_of

OTHER_STACK = "organization/disttrain/other"
ENDED = "Job train-indexed was stopped by ./disttrain stop"
GROUP = "/apis/kueue.x-k8s.io"


class Suspended(Server):
    """A stand-in for a cluster whose workload of the run is suspended.

    Args:
        by: the stack by which the record says that the run was suspended; empty: by nobody.
        queue: the queue of Kueue that the run was taken out of; empty: it is in none.
        looks: the number of looks at the workload before it is suspended.
    """

    def __init__(self, by: str, queue: str = "", looks: int = 0) -> None:
        super().__init__(replace(RECORD, workload=GONE.workload), "")
        self.record["metadata"]["annotations"][SUSPENDED_BY_ANNOTATION] = by
        labels = {QUEUE_LABEL: queue} if queue else {}
        self.workload = {
            "metadata": {"uid": "u1", "labels": labels},
            "spec": {"suspend": True},
            "status": {},
        }
        self.looks = looks
        self.out_of_queue: Json = {"metadata": {"name": "w"}, "spec": {"active": False}}

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        if path.endswith("/jobs/train-indexed"):
            self.workload["spec"]["suspend"] = self.looks <= 0
            self.looks -= 1
        if path == GROUP:
            return {"versions": [{"version": "v1beta2"}]}
        if path.startswith(GROUP):
            return {"items": [self.out_of_queue] if self.workload["metadata"]["labels"] else []}
        return super().answer(method, path, query, body)


WHEN = pytest.mark.parametrize(("queue", "looks"), [("", 0), ("", 3), ("gpus", 0), ("gpus", 3)])


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let waits ask again at once."""
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.0)


@WHEN
def test_stopped_run_ends_the_wait_well(
    queue: str, looks: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """`pulumi up` ends well if the run's user stops it meanwhile, and says how it goes on.
    Otherwise it would report a failed training and advise to delete the workload.
    """
    waits = {**AWAIT, **({"queue_seconds": 300} if queue else {})}
    await_ready.create(job(**waits), api_of(Suspended(RECORD.stack, queue, looks)))
    said = capsys.readouterr().out
    assert said.count(ENDED) == 1
    assert "It goes on with: ./disttrain resume --stack dev, or with pulumi up" in said
    assert "failed" not in said
    assert "delete" not in said


@WHEN
@pytest.mark.parametrize("by", [OTHER_STACK, ""])
def test_run_that_others_have_suspended_has_not_failed(
    by: str, queue: str, looks: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """`pulumi up` ends with an error if others have suspended the run, but it does not report a
    failed training. No setting has to be changed and nothing has to be deleted.
    """
    with pytest.raises(TaskError) as ended:
        await_ready.create(job(**AWAIT), api_of(Suspended(by, queue, looks)))
    said = str(ended.value)
    assert "failed" not in capsys.readouterr().out + said
    if queue and not by:
        out = "somebody has taken it out of queue gpus (spec.active of its Workload)"
        assert said.startswith(f"Job train-indexed does not start: {out}. `pulumi up` puts it back")
    else:
        who = f"stack {OTHER_STACK}, whose run took its place" if by else "somebody"
        assert said.startswith(f"Job train-indexed was suspended by {who}; `pulumi up` resumes it")
    assert "To fix it" not in said
    assert "delete" not in said


class Nobody(Server):
    """A stand-in for a cluster without a record of the run. Its `up` still prepares the data set or
    waits for another run.
    """

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        return None


def test_stop_before_the_training_says_how_to_end_up() -> None:
    """`./disttrain stop` of a run without a record says that Ctrl-C ends a `pulumi up` that is
    under way.
    """
    server = Nobody(GONE, "")
    with pytest.raises(
        TaskError, match="wait until it starts the training, or end it there by Ctr"
    ):
        find_record(api_of(server), RECORD.namespace, RECORD.owner)


@pytest.mark.parametrize(
    ("minutes", "said"),
    [(0, "either its `pulumi up` is just about to make it"), (10, "somebody has deleted it. `pul")],
)
def test_stop_just_before_the_workload_is_made(minutes: int, said: str) -> None:
    """`./disttrain stop` of a run whose record is new says that its `pulumi up` may be about to
    make the workload. Only after some minutes it says that somebody has deleted the workload.
    """
    since = datetime.now(UTC) - timedelta(minutes=minutes)
    record = replace(RECORD, workload=GONE.workload, since=since)
    with pytest.raises(TaskError, match=said):
        stop(api_of(Server(record, "")), record)

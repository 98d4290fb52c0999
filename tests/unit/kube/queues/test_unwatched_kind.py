"""Stopping and resuming a run that names a queue, but has no Workload of Kueue, or none yet.

The API server is a stand-in here; tests/kube and tests/e2e have a real Kueue.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from cli.status.snapshot import see_run
from infra.kube import waiting
from infra.kube.errors import TaskError
from infra.kube.names import WITHOUT_KUEUE_ANNOTATION
from infra.kube.queues.kueue import is_stopped
from infra.kube.runs.steer import resume, stop
from infra.names import QUEUE_LABEL
from tests.cli.records import RECORD
from tests.unit.kube.runs.gone_run import GONE, Server
from tests.unit.kube.server import api_of

GROUP = "/apis/kueue.x-k8s.io"
NOT_YET = "Job train-indexed is in queue gpus, but Kueue has not made a Workload for it"


class Unwatched(Server):
    """A cluster with a run whose kind Kueue does not watch. It carries out patches as a real server
    would.

    Args:
        suspended: whether the run is suspended, as Kueue's webhook makes each object of a kind that
            it watches.
    """

    def __init__(self, *, suspended: bool = False) -> None:
        run = replace(RECORD, workload=GONE.workload, resume={"spec": {"suspend": False}})
        super().__init__(run, "")
        labels = {
            QUEUE_LABEL: "gpus",
            "disttrain.dev/owner": RECORD.owner,
            "disttrain.dev/revision": RECORD.revision,
        }
        about: dict[str, Any] = {"name": "train-indexed", "uid": "u1", "labels": labels}
        kind = {"apiVersion": "batch/v1", "kind": "Job", "status": {}}
        self.workload = {**kind, "metadata": about, "spec": {"suspend": suspended}}
        self.kueues = list[Any]()

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        if path == GROUP:
            return {"versions": [{"version": "v1beta2"}]}
        if path.startswith(GROUP):
            if method == "PATCH":
                self.kueues[0]["spec"] |= body["spec"]
            return {"items": self.kueues}
        if path.endswith("/jobs/train-indexed") and method == "PATCH":
            self.workload["spec"] |= body["spec"]
            annotations = self.workload["metadata"].setdefault("annotations", {})
            annotations |= body.get("metadata", {}).get("annotations", {})
        return super().answer(method, path, query, json.loads(json.dumps(body)))

    @property
    def is_marked(self) -> bool:
        """Whether the run has the mark of a run that was stopped without Kueue."""
        about = self.workload["metadata"]
        return bool(about.get("annotations", {}).get(WITHOUT_KUEUE_ANNOTATION))

    def is_stopped(self) -> bool:
        """Whether the run counts as stopped."""
        return is_stopped(api_of(self), RECORD.namespace, self.workload, RECORD.suspend)


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let waits ask again at once."""
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.0)


def test_run_that_kueue_does_not_watch_stops() -> None:
    """A run that Kueue does not watch is stopped and resumed by its own field `suspend`. While it
    is stopped it has a mark, because otherwise it would look like a run that waits in its queue.
    """
    server = Unwatched()
    api = api_of(server)
    assert stop(api, server.now()) == ""
    assert (server.workload["spec"], server.is_marked) == ({"suspend": True}, True)
    assert server.is_stopped()
    assert see_run(api, server.now())[0].state == "stopped"
    assert stop(api, server.now()) == "Job train-indexed is stopped already"
    assert resume(api, server.now(), "replace", 0) == ""
    assert (server.workload["spec"], server.is_marked) == ({"suspend": False}, False)
    assert server.now().suspended_by == ""


def test_run_not_taken_up_yet_is_left() -> None:
    """Stopping a run that Kueue has not taken up yet is refused, and nothing is changed or noted.
    Otherwise Kueue would start the run later, although it counts as stopped.
    """
    server = Unwatched(suspended=True)
    with pytest.raises(TaskError, match=NOT_YET):
        stop(api_of(server), server.now())
    assert server.now().suspended_by == ""
    assert not server.is_marked
    assert not server.is_stopped()


def test_kueue_that_comes_later_decides() -> None:
    """If Kueue has made a Workload for a stopped run since, only the Workload says whether the run
    is stopped, and the mark no longer counts.
    """
    server = Unwatched()
    stop(api_of(server), server.now())
    server.kueues = [{"metadata": {"name": "w"}, "spec": {}, "status": {}}]
    assert not server.is_stopped()
    server.kueues[0]["spec"]["active"] = False
    assert server.is_stopped()


def test_run_whose_workload_is_finished_stops_itself() -> None:
    """If Kueue takes a run for finished whose pods go on, it is stopped and resumed by its own
    field `suspend`. The MPI Operator calls an MPIJob failed when a worker was evicted, and Kueue
    then leaves it alone.
    """
    server = Unwatched()
    finished = {"conditions": [{"type": "Finished", "status": "True"}]}
    server.kueues = [{"metadata": {"name": "w"}, "spec": {"active": True}, "status": finished}]
    api = api_of(server)
    assert stop(api, server.now()) == ""
    assert (server.workload["spec"], server.is_marked) == ({"suspend": True}, True)
    assert server.kueues[0]["spec"] == {"active": True}
    assert see_run(api, server.now())[0].state == "stopped"
    assert resume(api, server.now(), "replace", 0) == ""
    assert (server.workload["spec"], server.is_marked) == ({"suspend": False}, False)

"""A run comes up while a workload of its name is still being deleted.

The API server is a stand-in here; tests/kube/test_hand_over.py asks a real one.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock

import pytest

from infra.kube import waiting
from infra.kube.api_server.api import Api
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.names import OWNER_LABEL, STACK_ANNOTATION
from infra.kube.record import record_path
from infra.kube.runs import hand_over, replaced
from tests.unit.kube.server import ApiServer, Json, api_of

PLACE = "/api/v1/namespaces/disttrain"
WORKLOAD = "/apis/batch/v1/namespaces/disttrain/jobs/train"


class Server(ApiServer):
    """A cluster with a Job of the run's name and its pod.

    Args:
        is_ending: whether the Job is being deleted.
        gone_after: the number of seconds after which the Job and its pod are gone.
        owner: the owner of the Job and the pod.
    """

    def __init__(self, *, is_ending: bool, gone_after: float, owner: str = "before") -> None:
        ends = {"deletionTimestamp": "2026-11-26T01:00:00Z"} if is_ending else {}
        self.job: Json = {
            "kind": "Job",
            "apiVersion": "batch/v1",
            "metadata": {
                "name": "train",
                "uid": "1",
                "labels": {OWNER_LABEL: owner},
                "annotations": {STACK_ANNOTATION: "dev"},
                **ends,
            },
        }
        self.gone_after, self.owner = gone_after, owner
        self.made: list[str] = []

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        is_there = self.seconds < self.gone_after
        if method == "POST":
            self.made.append(f"{path}/{body['metadata']['name']}")
            return body
        if path == WORKLOAD:
            return self.job if is_there else None
        if path == f"{PLACE}/pods":
            is_asked_for = f"{OWNER_LABEL}={self.owner}" in query["labelSelector"]
            pod = {"metadata": {"name": "train-x"}, "spec": {}, "status": {"phase": "Running"}}
            return {"items": [pod] if is_there and is_asked_for else []}
        if path == "/apis/batch/v1":
            return {"resources": [{"name": "jobs", "kind": "Job", "namespaced": True}]}
        if path == PLACE:
            return {"metadata": {"name": "disttrain"}}
        return {"items": []} if path.endswith("/configmaps") else None


@contextmanager
def locked(*_: object) -> Iterator[Mock]:
    """Stand in for the lock of the namespace, which nobody else has."""
    yield Mock()


def come_up(
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    task: Callable[[Job, Api], None] = hand_over.create,
) -> str:
    """Return the error of the task; empty: the run may start."""
    monkeypatch.setattr(waiting, "time", server)
    monkeypatch.setattr(hand_over, "held", locked)
    api = api_of(server)
    numbers = dict.fromkeys(("gpus", "gpus_total", "wait_timeout_seconds"), 0)
    texts = {"revision": "r", "when_busy": "replace", "request": "1", "platform_stack": "dev"}
    workload = {"api_version": "batch/v1", "kind": "Job", "name": "train"}
    fields = {**numbers, **texts, "workload": workload, "grace_seconds": 30}
    try:
        task(Job(api.access, "disttrain", "mine", "dev", fields), api)
    except TaskError as error:
        return str(error)
    return ""


def test_workload_that_goes_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run waits until a former workload of its name is gone, such as one that an interrupted
    `destroy` has left. Otherwise `up` would say that the workload belongs to another stack.
    """
    server = Server(is_ending=True, gone_after=25)
    assert come_up(server, monkeypatch) == ""
    assert server.seconds >= 25
    assert server.made == [record_path("disttrain", "mine")]


def test_what_keeps_it_is_named_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the former workload is not gone a minute after its grace period, the run fails, and the
    error names the pods that still run.
    """
    server = Server(is_ending=True, gone_after=86400)
    said = come_up(server, monkeypatch)
    assert said.startswith("waited 90 s for Job train, which has the name of this run and is being")
    assert "train-x Running" in said
    assert server.made == []


def test_workload_that_stays_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A workload of another owner that is not being deleted is refused at once and is not
    changed.
    """
    server = Server(is_ending=False, gone_after=86400)
    assert "belongs to dev, not to stack dev, and is left as it is" in come_up(server, monkeypatch)
    assert server.seconds == 0


@pytest.mark.parametrize("is_ending", [True, False])
def test_own_workload_that_the_engine_replaces_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, is_ending: bool
) -> None:
    """The task `replaced` waits while the engine's old workload is being deleted, and leaves one
    alone that is not. Otherwise the provider would change the old object, and the run would have no
    workload afterwards.
    """
    server = Server(is_ending=is_ending, gone_after=25, owner="mine")
    assert come_up(server, monkeypatch, replaced.create) == ""
    assert (server.seconds >= 25) == is_ending
    assert server.made == []


def test_replaced_workload_that_stays_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(is_ending=True, gone_after=86400, owner="mine")
    said = come_up(server, monkeypatch, replaced.create)
    assert said.startswith("waited 90 s for Job train")
    assert "train-x Running" in said

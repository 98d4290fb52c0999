"""A command says that its pod is still there if the user may make pods and may not delete them."""

from collections.abc import Mapping
from typing import Any

import pytest

from cli.goodput import run_events
from cli.stack_outputs import RunPlace
from infra.kube.api_server.access import Access
from infra.kube.errors import ApiError
from infra.kube.files import task_pod
from tests.unit.kube.server import ApiServer, Json, api_of
from trainer.events.event import Events

PLACE = RunPlace(Access(kubeconfig="{}"), "n", "o", "image", "/data/runs/a", "Job a", "claim")


class Cluster(ApiServer):
    """A stand-in cluster whose pods run and may not be deleted.

    Args:
        may_make: whether the user may make pods.
    """

    def __init__(self, *, may_make: bool = True) -> None:
        self._may_make = may_make

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json:
        if method == "POST" and not self._may_make:
            raise ApiError(403, "pods is forbidden: you may not create")
        if method == "DELETE":
            raise ApiError(403, "pods is forbidden: you may not delete")
        return {"status": {"phase": "Running"}}


def test_pod_that_could_not_be_removed_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command that may not delete its pod gives its answer, and says why the pod stays and when
    it ends. Otherwise pods would stay for minutes, those of `logs` for 12 hours, and nobody would
    know.
    """
    server = Cluster()
    monkeypatch.setattr(task_pod, "time", server)
    events = Events.of(b"")
    monkeypatch.setattr(run_events, "read_events", lambda *_: events)
    assert run_events.fetch_events(api_of(server), PLACE) is events
    out, err = capsys.readouterr()
    assert out == ""
    assert "could not be removed (pods is forbidden: you may not delete)" in err
    assert "ends by itself 900 s after its start, and pulumi destroy removes it" in err


def test_pod_that_was_never_made_is_not_named(capsys: pytest.CaptureFixture[str]) -> None:
    """If the user may neither make nor delete pods, the error is about the first. There is no pod
    that stays, and no sentence about one.
    """
    with pytest.raises(ApiError, match="you may not create"):
        run_events.fetch_events(api_of(Cluster(may_make=False)), PLACE)
    assert "could not be removed" not in capsys.readouterr().err

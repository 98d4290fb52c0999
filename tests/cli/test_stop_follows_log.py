"""`disttrain stop` reads what the run has saved from the log of a pod that is soon gone."""

import argparse
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import cli.stop
from cli.stack_outputs import RunPlace
from cli.status.progress import Progress
from infra.kube.api_server.access import Access
from infra.kube.errors import UnreachableError
from tests.cli.records import RECORD
from tests.cli.status.trainer_lines import START, STEPS

PLACE = RunPlace(
    Access(kubeconfig="{}"), RECORD.namespace, RECORD.owner, "image", "/data/runs/dev", "w", "c"
)
POD = {
    "metadata": {"name": "train-singlepod-abc"},
    "spec": {"containers": [{"name": "trainer"}, {"name": "istio-proxy"}]},
    "status": {"phase": "Running"},
}


class SlowLog:
    """A stand-in API server that takes 0.3 s to open the log of the one pod.

    The log cannot be opened any more once `is_gone` is set.
    """

    access = None

    def __init__(self) -> None:
        self.is_gone = False

    def list(self, *_: object) -> list[dict[str, Any]]:
        return [POD]

    def stream(self, _: str, query: dict[str, str]) -> SimpleNamespace:
        time.sleep(0.3)
        if query.get("container") != "trainer":  # the request must name one of the two containers
            return SimpleNamespace(status=400)
        return SimpleNamespace(status=404 if self.is_gone else 200, stream=self._blocks)

    def _blocks(self, _: int) -> Iterator[bytes]:
        yield (START + STEPS).encode()


def test_stop_follows_log_before_it_stops(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`stop` has opened the pod's log before it stops the run. Otherwise the pod may be gone before
    a busy API server opens the log, and nobody knows what the run has saved.
    """
    api, noted = SlowLog(), list[int]()

    def stop(*_: object) -> str:
        api.is_gone = True
        return ""

    monkeypatch.setattr(cli.stop, "end_in_order", lambda: None)
    monkeypatch.setattr(cli.stop, "run_place", lambda _: PLACE)
    monkeypatch.setattr(cli.stop, "Api", lambda _: api)
    monkeypatch.setattr(cli.stop, "find_record", lambda *_: RECORD)
    monkeypatch.setattr(cli.stop, "stop", stop)
    monkeypatch.setattr(cli.stop, "note_saved_step", lambda _, __, step: noted.append(step))
    assert cli.stop.run(argparse.Namespace(stack="dev")) == 0
    assert "it has saved step 20." in capsys.readouterr().out
    assert noted == [20]


def test_stop_is_told_though_its_note_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`stop` says that the run is stopped although the saved step could not be noted in the
    cluster, and then ends with that error. The API server may be away just then.
    """

    def refuse(*_: object) -> None:
        raise UnreachableError("nobody answers")

    monkeypatch.setattr(cli.stop, "end_in_order", lambda: None)
    monkeypatch.setattr(cli.stop, "run_place", lambda _: PLACE)
    monkeypatch.setattr(cli.stop, "Api", lambda _: SlowLog())
    monkeypatch.setattr(cli.stop, "find_record", lambda *_: RECORD)
    monkeypatch.setattr(cli.stop, "stop", lambda *_: "")
    monkeypatch.setattr(cli.stop, "note_saved_step", refuse)
    with pytest.raises(UnreachableError):
        cli.stop.run(argparse.Namespace(stack="dev"))
    assert "it has saved step 20." in capsys.readouterr().out


def test_stop_without_a_pod_waits_for_no_log() -> None:
    """`stop` of a run without pods does not wait for a log."""
    api = SimpleNamespace(access=None, list=lambda *_: [])
    last = cli.stop.LastLines(api, RECORD)  # pyright: ignore[reportArgumentType]
    last.wait_until_followed(60)
    assert last.progress() == Progress()

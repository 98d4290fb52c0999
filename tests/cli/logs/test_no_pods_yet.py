"""`./disttrain logs` of a run that has no pods yet, such as one that waits in a queue of Kueue."""

from collections.abc import Mapping
from typing import Any

import pytest

from cli.__main__ import main
from infra.names import QUEUE_LABEL
from tests.cli.records import NOW, PLACE, RECORD
from tests.unit.kube.server import ApiServer, Json, api_of


class Queued(ApiServer):
    """A stand-in API server with a run that waits in a queue, and that is deleted after some looks.

    Args:
        looks: how often the run's workload can be read.
    """

    def __init__(self, looks: int) -> None:
        self._looks = looks

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any
    ) -> Json | str | None:
        assert method == "GET"
        if path == "/apis/batch/v1":
            return {"resources": [{"name": "jobs", "kind": "Job", "namespaced": True}]}
        if path == "/apis/kueue.x-k8s.io":
            return {"versions": [{"version": "v1beta2"}]}
        if path.endswith("/jobs/train-singlepod"):
            self._looks -= 1
            return self._job() if self._looks >= 0 else None
        if "/configmaps/" in path:
            return RECORD.to_object(RECORD.namespace)
        return {"items": []} if path.endswith(("/pods", "/workloads", "queues")) else None

    def _job(self) -> Json:
        return {
            "metadata": {"name": "train-singlepod", "uid": "u", "labels": {QUEUE_LABEL: "gpus"}},
            "spec": {"suspend": True},
        }


def logs_of(server: ApiServer, monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    """Run `./disttrain logs` with this cluster, and return its exit status."""
    api = api_of(server)
    monkeypatch.setattr(api, "now", lambda: NOW)
    monkeypatch.setattr("cli.logs.command.run_place", lambda _: PLACE)
    monkeypatch.setattr("cli.logs.command.Api", lambda _: api)
    monkeypatch.setattr("cli.logs.command.end_in_order", lambda: None)
    monkeypatch.setattr("cli.logs.merged.POLL_SECONDS", 0.0)
    monkeypatch.setattr("cli.logs.merged.STEP_SECONDS", 0.0)
    return main(["logs", *options])


def test_queued_run_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the run waits for is said once, and the command ends only when the run is gone."""
    server = Queued(looks=9)
    assert logs_of(server, monkeypatch) == 1
    said = capsys.readouterr().err
    waits = "train-singlepod has no pods yet (queued: in queue gpus: Kueue has not taken it up yet."
    assert said.count(waits) == 1
    assert "its lines follow when it starts" in said


def test_all_that_exists_is_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `--no-follow`, the command says that there are no lines, and ends with 1."""
    server = Queued(looks=9)
    assert logs_of(server, monkeypatch, "--no-follow") == 1
    said = capsys.readouterr().err
    assert "has no pods, and no logs are on the volume (queued: in queue gpus" in said

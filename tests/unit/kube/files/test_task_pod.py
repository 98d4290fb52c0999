"""The pod of a command, such as `./disttrain sample`, while it starts."""

from collections.abc import Mapping
from typing import Any

import pytest

from infra.kube import waiting
from infra.kube.files.task_pod import TaskPod, running
from tests.unit.kube.server import ApiServer, Json, api_of

POD = TaskPod("sample", "11111111", "disttrain", "trainer:1", ("true",), "data", 60)


class Cluster(ApiServer):
    """A cluster in which a pod runs one second after it was made."""

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json:
        del query, body
        if method != "GET":
            return {}
        phase = "Running" if self.seconds >= 1 else "Pending"
        return {"metadata": {"name": path.rpartition("/")[2]}, "status": {"phase": phase}}


def test_wait_names_the_pod_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line about the wait for a pod has the pod's name once, so that it fits on the screen with
    what the pod waits for.
    """
    cluster = Cluster()
    monkeypatch.setattr(waiting, "time", cluster)
    with running(api_of(cluster), POD, name="disttrain-sample-1"):
        said = capsys.readouterr().out
    assert said == "0 s: waiting for pod disttrain-sample-1 to start; Pending\n"

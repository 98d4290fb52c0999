"""Commands read the trainer's log from a pod to which the cluster has added another container.

The proxy of a service mesh is such a container. The API server then gives no log unless the request
names a container.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from cli.logs import pod_logs
from cli.logs.pod_logs import PodLogs
from cli.verify.gather import _first_lines  # pyright: ignore[reportPrivateUsage]
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError
from tests.unit.kube.server import ApiServer, Json, api_of

POD: Json = {
    "metadata": {"name": "train-a", "uid": "1"},
    "spec": {"containers": [{"name": "trainer"}, {"name": "istio-proxy"}]},
    "status": {"phase": "Running"},
}
PLACE: Any = SimpleNamespace(namespace="n", owner="o", access=None)


def refuse_without(query: Mapping[str, str]) -> None:
    """Refuse a request for a log that does not name the trainer's container, as the API server
    does.
    """
    if query.get("container") != "trainer":
        raise ApiError(400, "a container name must be specified for pod train-a")


class Cluster(ApiServer):
    """A stand-in API server for a pod of two containers."""

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> str:
        refuse_without(query)
        return "2026-11-22T09:00:00.1Z step 1\n"


def test_lines_of_the_trainer_are_read() -> None:
    """`logs` reads the lines that the trainer's container has written."""
    logs = PodLogs(api_of(Cluster()), PLACE)
    lines = logs.there([POD], 0.0, lambda _: 0.0)
    assert [line.text for line in lines] == ["step 1"]
    assert logs.problems == []


def test_lines_of_the_trainer_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`logs` follows the log of the trainer's container."""
    asked = list[str]()

    def stream(_: Api, __: str, query: dict[str, str]) -> SimpleNamespace:
        asked.append(query.get("container", ""))
        body = b"2026-11-22T09:00:00.1Z step 1\n"
        return SimpleNamespace(status=200, stream=lambda _: iter([body]))

    monkeypatch.setattr(pod_logs.Api, "stream", stream)
    logs = PodLogs(api_of(Cluster()), PLACE)
    logs.follow([POD])
    for thread in logs._threads.values():  # pyright: ignore[reportPrivateUsage]
        thread.join(60)
    assert [line.text for line in logs.take()] == ["step 1"]
    assert set(asked) == {"trainer"}


def test_verify_reads_what_the_trainer_says() -> None:
    """`verify` reads the first lines of the trainer's container."""
    assert "step 1" in _first_lines(api_of(Cluster()), PLACE, POD)

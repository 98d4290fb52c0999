"""The lines of pods on a machine that does not answer, such as one that is off."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from cli.logs import pod_logs
from cli.logs.pod_logs import PodLogs
from infra.kube.api_server.access import Access
from infra.kube.errors import UnreachableError
from tests.unit.kube.server import ApiServer, api_of

PLACE: Any = SimpleNamespace(namespace="n", owner="o", access=Access(kubeconfig="{}"))
ANSWER_SECONDS = 30.0


class Lost(ApiServer):
    """A stand-in API server: machine `b` gives no answer, and the server gives up after a while.

    Args:
        seconds: how long the server waits for machine `b`.
    """

    def __init__(self, seconds: float) -> None:
        self._wait, self.asked = seconds, list[str]()

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> str:
        del method, query, body
        name = path.split("/")[-2]
        self.asked.append(name)
        if name.startswith("b"):
            self.seconds += self._wait
            raise UnreachableError("504 dial tcp 10.0.0.2:10250: i/o timeout")
        return f"2026-11-22T09:00:00.5Z from {name}\n"


def pod(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": name},
        "spec": {"containers": [{"name": "trainer"}], "nodeName": name[0]},
        "status": {"phase": "Running"},
    }


PODS = [pod(name) for name in ("a-0", "b-1", "b-2", "a-3")]


@pytest.mark.parametrize(
    ("seconds", "asked"),
    [(ANSWER_SECONDS, ["b-1"]), (0.1, ["b-1", "b-1", "b-2", "b-2"])],
    ids=["silent", "refuses-at-once"],
)
def test_machine_that_is_off_is_waited_for_once(
    seconds: float, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request to a machine that is off takes half a minute. Its other pods, and the other part
    of the same log, are not waited for, and each such pod is named once. An error that comes at
    once says nothing about the other pods.
    """
    server = Lost(seconds)
    monkeypatch.setattr(pod_logs, "time", server)
    logs = PodLogs(api_of(server), PLACE)
    found = logs.there(PODS, 0.0, lambda _: 1000.0)
    assert {line.text for line in found} == {"from a-0", "from a-3"}
    assert [name for name in server.asked if name.startswith("b")] == asked
    assert [problem.split(":")[0] for problem in logs.problems] == [
        "the log of pod b-1",
        "the log of pod b-2",
    ]
    assert all("i/o timeout" in problem for problem in logs.problems)

"""The last lines of a pod that has ended, where the API server cuts its answer or fails."""

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from cli.logs import pod_logs
from cli.logs.line import Line
from cli.logs.merged import Merged
from cli.logs.pod_logs import MOST_TRIES, PodLogs
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from tests.unit.kube.server import ApiServer, api_of

PLACE: Any = SimpleNamespace(namespace="n", owner="o", access=Access(kubeconfig="{}"))
LINES = [f"2026-11-22T09:00:00.{number}Z step {number}".encode() for number in range(1, 5)]
SAID = [f"step {number}" for number in range(1, 5)]
BROKEN = b'{"kind":"Status","message":"stream error: the kubelet has closed the connection"}'


class Answer:
    """One answer of the API server to a request for a log."""

    def __init__(self, body: bytes, status: int = 200, *, is_cut: bool = False) -> None:
        self.body, self.status, self._is_cut = body, status, is_cut

    def stream(self, size: int) -> Iterator[bytes]:
        del size
        yield self.body
        if self._is_cut:
            raise OSError("the connection was closed")


class Server:
    """Gives these answers one after the other, and the last one again and again."""

    def __init__(self, *answers: Answer) -> None:
        self.answers, self.queries = list(answers), list[dict[str, str]]()

    def give(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def stream(_: Api, __: str, query: dict[str, str]) -> Answer:
            self.queries.append(query)
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

        monkeypatch.setattr(pod_logs.Api, "stream", stream)


def lines(first: int, last: int) -> bytes:
    return b"".join(line + b"\n" for line in LINES[first - 1 : last])


def pod(phase: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "train-a", "uid": "1"},
        "spec": {"containers": [{"name": "trainer"}]},
        "status": {"phase": phase},
    }


def followed(server: Server, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Line], PodLogs]:
    """What was shown of an ended pod by the time at which `follow` says that all have ended."""
    server.give(monkeypatch)
    logs, found = PodLogs(Api(PLACE.access), PLACE), list[Line]()
    for _ in range(10 * MOST_TRIES):
        ended = logs.follow([pod("Succeeded")])
        for thread in logs._threads.values():  # pyright: ignore[reportPrivateUsage]
            thread.join(60)
        found += logs.take()
        if ended:
            return found, logs
    raise AssertionError("the log of a pod that has ended is asked for without an end")


@pytest.mark.parametrize(
    "answers",
    [
        [Answer(lines(1, 2)), Answer(lines(1, 3)), Answer(lines(3, 4)), Answer(lines(4, 4))],
        [Answer(lines(1, 2), is_cut=True), Answer(BROKEN, 500), Answer(lines(2, 4))],
        [Answer(BROKEN, 503), Answer(lines(1, 4))],
        [Answer(lines(1, 2) + BROKEN), Answer(BROKEN, 429), Answer(lines(2, 4))],
    ],
    ids=["ends-early", "cut-and-refused", "refused", "error-in-the-text"],
)
def test_last_lines_of_an_ended_pod_are_shown(
    answers: list[Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that ends early looks like the end of the log, so the rest is asked for.

    The lines of the second that is read twice are shown once.
    """
    server = Server(*answers)
    found, logs = followed(server, monkeypatch)
    assert [line.text for line in found] == SAID
    assert logs.problems == []
    assert "sinceTime" in server.queries[-1]


@pytest.mark.parametrize(("status", "tries"), [(404, 1), (500, MOST_TRIES)])
def test_log_that_is_never_given_ends_the_wait(
    status: int, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node may have removed it, or may be lost. Then the user is told what is not shown."""
    server = Server(Answer(BROKEN, status))
    found, logs = followed(server, monkeypatch)
    assert (found, len(server.queries)) == ([], tries)
    (problem,) = logs.problems
    assert problem.startswith("the last lines of pod train-a: stream error: the kubelet has closed")


def test_user_is_told_which_last_lines_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`./disttrain logs` warns once when it has followed such a pod."""
    Server(Answer(BROKEN, 404)).give(monkeypatch)
    monkeypatch.setattr(PodLogs, "pods", lambda _: [pod("Succeeded")])
    monkeypatch.setattr("cli.logs.merged.POLL_SECONDS", 0.0)
    warnings = list[str]()
    merged = Merged(PodLogs(Api(PLACE.access), PLACE), None, warnings.append)
    assert [line for some in merged.follow() for line in some] == []
    assert len(warnings) == 1
    assert warnings[0].startswith("not shown: the last lines of pod train-a: stream error")


class Short(ApiServer):
    """Answers each request for the log with two lines at most, from the second that is asked."""

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> str:
        del method, path, body
        begin = [line for line in LATER if line >= query.get("sinceTime", "").rstrip("Z")]
        return "\n".join(begin[:2]) + "\n"


LATER = [f"2026-11-22T09:00:0{number}.5Z step {number}" for number in range(1, 5)]


def test_last_lines_are_shown_without_follow_too() -> None:
    """`./disttrain logs --no-follow` and `--first-error` need the last lines most of all."""
    logs = PodLogs(api_of(Short()), PLACE)
    found = logs.there([pod("Failed")], 0.0, lambda _: 0.0)
    assert [line.text for line in found] == SAID

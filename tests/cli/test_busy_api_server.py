"""An API server that is busy for a moment (429, 503) keeps its logs, which are asked for again."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import cli.followed_log
import cli.stop
from cli.followed_log import followed_log
from infra.kube.errors import ApiError, UnreachableError
from tests.cli.records import RECORD
from tests.cli.status.trainer_lines import START, STEPS

POD = {
    "metadata": {"name": "a"},
    "spec": {"containers": [{"name": "trainer"}]},
    "status": {"phase": "Running"},
}
BUSY = b'{"kind": "Status", "message": "the server has asked for the client to wait"}'
GONE = b'{"kind": "Status", "message": "pods \\"a\\" not found"}'


class Server:
    """Answers a request for a log with one of these statuses after the other, the last for ever."""

    access = None

    def __init__(self, text: str, *statuses: int) -> None:
        self._text, self._statuses = text.encode(), list(statuses)

    def list(self, *_: object) -> list[Any]:
        return [POD]

    def stream(self, *_: object) -> SimpleNamespace:
        status = self._statuses[0] if len(self._statuses) == 1 else self._statuses.pop(0)
        content = {200: self._text, 404: GONE}.get(status, BUSY)

        def blocks(_: int) -> Iterator[bytes]:
            yield content

        return SimpleNamespace(status=status, data=content, stream=blocks, close=lambda: None)


@pytest.fixture(autouse=True)
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: None)
    monkeypatch.setattr(cli.followed_log, "time", clock)
    monkeypatch.setattr(cli.stop, "time", clock)


def followed(server: Any) -> bytes:
    return b"".join(followed_log(server, "/pods/a", "sample"))


@pytest.mark.parametrize("status", [429, 502, 503])
def test_log_of_a_pod_is_asked_for_again(status: int) -> None:
    """`sample` ended there, and its text was lost with the pod."""
    assert followed(Server("To be", status, 200)) == b"To be"


def test_log_that_is_gone_is_told_in_the_words_of_the_server() -> None:
    with pytest.raises(ApiError, match=r'^pods "a" not found$'):
        followed(Server("To be", 404))


def test_server_that_stays_busy_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.followed_log, "AWAY_SECONDS", 0.0)
    with pytest.raises(UnreachableError, match="cut off: 503 the server has asked"):
        followed(Server("To be", 503))


def test_stop_sees_what_was_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """It took the pod for one that is gone."""
    server: Any = Server(START + STEPS, 429, 200)
    monkeypatch.setattr(cli.stop, "Api", lambda _: server)
    assert cli.stop.LastLines(server, RECORD).progress(60).saved_step == 20

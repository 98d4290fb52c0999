"""Commands ask again for a pod's log when the API server was too busy to answer (429, 502, 503).

The API server is a stand-in.
"""

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
    """A stand-in API server that answers each request for a log with the next of its statuses.

    When only the last status is left, it answers every further request with that one.
    """

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
    """Let the commands wait without spending time: their clock stands still and their sleep
    returns.
    """
    clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: None)
    monkeypatch.setattr(cli.followed_log, "time", clock)
    monkeypatch.setattr(cli.stop, "time", clock)


def followed(server: Any) -> bytes:
    """Return the log of the pod `a` as `sample` reads it."""
    return b"".join(followed_log(server, "/pods/a", "sample"))


@pytest.mark.parametrize("status", [429, 502, 503])
def test_log_of_a_pod_is_asked_for_again(status: int) -> None:
    """A command that reads a pod's log gets all of it although the API server was busy at first.
    Otherwise `sample` would end, and the text would be lost with its pod.
    """
    assert followed(Server("To be", status, 200)) == b"To be"


def test_log_that_is_gone_is_told_in_the_words_of_the_server() -> None:
    """A log that no longer exists (404) is not asked for again: the command ends with the server's
    words.
    """
    with pytest.raises(ApiError, match=r'^pods "a" not found$'):
        followed(Server("To be", 404))


def test_server_that_stays_busy_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command gives up on an API server that stays busy for AWAY_SECONDS, and repeats what it
    said.
    """
    monkeypatch.setattr(cli.followed_log, "AWAY_SECONDS", 0.0)
    with pytest.raises(UnreachableError, match="cut off: 503 the server has asked"):
        followed(Server("To be", 503))


def test_stop_sees_what_was_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """`stop` finds the last saved step although the API server was busy when `stop` asked for the
    log. Otherwise `stop` would take the pod for one that is gone, and could not say what was saved.
    """
    server: Any = Server(START + STEPS, 429, 200)
    monkeypatch.setattr(cli.stop, "Api", lambda _: server)
    assert cli.stop.LastLines(server, RECORD).progress(60).saved_step == 20

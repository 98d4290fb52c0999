"""What a command in a pod writes is passed on as it arrives, however the command ends.

The websocket is a stand-in that plays recorded messages: the number of a channel, then bytes.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import websocket

from infra.kube.api_server import exec_stream
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.api_server.exec_stream import SILENCE_SECONDS, STDERR_BYTES, execute, stream
from infra.kube.errors import UnreachableError

SUCCESS = b"\x03" + json.dumps({"status": "Success"}).encode()
FAILURE = {"details": {"causes": [{"reason": "ExitCode", "message": "44"}]}, "status": "Failure"}


class Recorded:
    def __init__(self, messages: Iterator[bytes]) -> None:
        self._messages = messages
        self.is_closed = False
        self.patience_seconds = 0.0

    def settimeout(self, seconds: float) -> None:
        assert seconds > 0
        self.patience_seconds = seconds

    def recv(self) -> bytes:
        try:
            return next(self._messages)
        except StopIteration:
            raise websocket.WebSocketConnectionClosedException("lost") from None

    def close(self, timeout: float) -> None:
        self.is_closed = True


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes an Api whose websocket plays the messages. `play.socket` is the
    websocket, and `play.query` is the query of the request.
    """

    def play(*messages: bytes) -> Api:
        socket = Recorded(iter(messages))

        class Client:
            def websocket(self, path: str, query: list[tuple[str, str]]) -> Recorded:
                play.query = query  # pyright: ignore
                return socket

        monkeypatch.setattr(Api, "client", property(lambda self: Client()))
        play.socket = socket  # pyright: ignore
        return Api(Access("not used"))

    return play


def test_blocks_reach_the_sink_in_their_order(play: Any) -> None:
    """The blocks of standard output arrive in their order, apart from standard error, and the exit
    code of the command is returned.
    """
    api = play(b"\x03", b"\x01ab", b"\x02warning", b"\x01", b"\x01c", SUCCESS)
    blocks: list[bytes] = []
    ended = stream(api, "pod", "task", ["x"], lambda block: blocks.append(bytes(block)))
    assert b"".join(blocks) == b"abc"
    assert (ended.exit_code, ended.stdout, ended.stderr) == (0, "", "warning")
    assert play.socket.is_closed
    api = play(b"\x01ab", b"\x01c", b"\x03" + json.dumps(FAILURE).encode())
    assert execute(api, "pod", "task", ["x"]) == exec_stream.Ended(44, "abc", "")


def test_silence_that_is_allowed_is_waited_for(play: Any) -> None:
    """The caller can set how long a command may be silent. The programs of this project give signs
    of life, but a command that a user types need not.
    """
    api = play(SUCCESS)
    stream(api, "pod", "task", ["x"], lambda block: None)
    assert play.socket.patience_seconds == SILENCE_SECONDS
    api = play(SUCCESS)
    stream(api, "pod", "task", ["x"], lambda block: None, silence_seconds=7200)
    assert play.socket.patience_seconds == 7200


def test_only_the_end_of_a_long_standard_error_is_kept(play: Any) -> None:
    api = play(*[b"\x02" + b"." * 10_000] * 20, b"\x02last words", SUCCESS)
    text = stream(api, "pod", "task", ["x"], lambda block: None).stderr
    assert len(text) == STDERR_BYTES
    assert text.endswith("last words")


def test_lost_connection_is_told_apart_from_a_full_disk(play: Any) -> None:
    """An error that the receiver of the output raises is passed on unchanged, and not as a lost
    connection. Otherwise a full disk, for example, would be tried again.
    """

    def full(block: memoryview) -> None:
        raise OSError("No space left on device")

    with pytest.raises(UnreachableError, match="the connection was cut: lost"):
        stream(play(b"\x01ab"), "pod", "task", ["x"], lambda block: None)
    assert play.socket.is_closed
    with pytest.raises(OSError, match="No space left"):
        stream(play(b"\x01ab", SUCCESS), "pod", "task", ["x"], full)
    assert play.socket.is_closed


def test_command_that_never_ends_is_given_up(play: Any) -> None:
    api = play(*[b"\x01ab"] * 10)
    with pytest.raises(UnreachableError, match="longer than 0 s"):
        stream(api, "pod", "task", ["x"], lambda block: None, limit_seconds=0.0)


def test_command_without_input_finds_its_end_at_once(play: Any) -> None:
    """A command for which there is no input gets no standard input. Otherwise a command that reads
    its input, such as `cat`, would wait forever.
    """
    stream(play(SUCCESS), "pod", "task", ["cat"], lambda block: None)
    assert ("stdin", "true") not in play.query
    stream(play(SUCCESS), "pod", "task", ["cat"], lambda block: None, iter(()))
    assert ("stdin", "true") in play.query

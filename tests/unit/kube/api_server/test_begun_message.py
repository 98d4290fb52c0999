"""The client gives up a message of which only the beginning has arrived, because a connection may
die in the middle of a message.

Between two messages the connection may be silent. The websocket is real, over a pair of sockets.
"""

from __future__ import annotations

import os
import pty
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import websocket

from infra.kube.api_server import port_forward, terminal
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.errors import UnreachableError

LIMIT_SECONDS = 120
FRAME_SECONDS = 0.1
IDLE_SECONDS = 4 * FRAME_SECONDS
BEGUN = bytes([0x82, 100, 1]) + b"of a hundred bytes"  # the rest never comes


@dataclass
class Ends:
    """Both ends of a connection: the websocket that the commands use, and the plain socket of the
    server.
    """

    here: websocket.WebSocket
    there: socket.socket


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ends]:
    """Yield a connection that the API client uses, with a short limit for the rest of a message."""
    ours, theirs = socket.socketpair()
    made = websocket.WebSocket()
    made.sock, made.connected = ours, True
    monkeypatch.setattr(Api, "websocket", lambda *_: made)
    for module in (port_forward, terminal):
        monkeypatch.setattr(module, "FRAME_SECONDS", FRAME_SECONDS)
    with theirs, ours:
        yield Ends(made, theirs)


def test_forwarded_connection_ends_within_a_message(ends: Ends) -> None:
    """A forwarded port closes its connection if the rest of a message does not come. The client
    sees an end as of a server that has gone, and does not wait forever.
    """
    port_of_channels = b"".join(bytes([0x82, 3, channel, 80, 0]) for channel in (0, 1))
    ends.there.sendall(port_of_channels)
    access = Access(kubeconfig="{}")
    with (
        port_forward.forwarded(access, "/pods/a", 80, 0) as port,
        socket.create_connection(("127.0.0.1", port), LIMIT_SECONDS) as client,
    ):
        client.settimeout(IDLE_SECONDS)
        with pytest.raises(TimeoutError):  # Silence between messages is allowed.
            client.recv(1)
        client.settimeout(LIMIT_SECONDS)
        ends.there.sendall(bytes([0x82, 6, 0]) + b"hello")
        assert client.recv(100) == b"hello"
        ends.there.sendall(BEGUN)
        assert client.recv(100) == b""


def test_terminal_ends_within_a_message(ends: Ends) -> None:
    """A terminal ends with an error if the rest of a message does not come, so that the user has
    the shell back.
    """
    ours, theirs = pty.openpty()
    shown, has_ended = list[bytes](), threading.Event()

    def serve() -> None:
        ends.there.sendall(bytes([0x82, 6, 1]) + b"hello")
        shown.append(os.read(ours, 100))
        ends.there.sendall(BEGUN)
        if not has_ended.wait(LIMIT_SECONDS):
            shown.append(b"it waits for ever")
            ends.there.close()

    server = threading.Thread(target=serve)
    server.start()
    try:
        api = Api(Access(kubeconfig="{}"))
        with pytest.raises(UnreachableError, match="the connection was cut: "):
            terminal.interact(api, "/pods/a", "trainer", ["sh"], theirs)
    finally:
        has_ended.set()
        server.join()
        os.close(ours)
        os.close(theirs)
    assert shown == [b"hello"]

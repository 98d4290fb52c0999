"""The frames of a websocket whose first byte is a channel, as `exec` and `portforward` have them.

One thread reads and writes such a connection. Two must not: what one of them closes has a number
that the system gives to the next connection, and the other one would read or write there.
"""

import select
from typing import Any

import websocket

from infra.kube.errors import UnreachableError

KEPT_ALIVE = -1
"""In the place of a channel: the frame only keeps the connection alive."""


def wait_readable(socket: Any, *others: Any) -> list[Any]:
    """Which of a websocket and other sockets, files or descriptors have something to read.

    What the connection has decrypted already is not seen by the system, and counts.
    """
    has_decrypted = getattr(socket.sock, "pending", int)() > 0
    ready, _, _ = select.select([socket.sock, *others], [], [], 0 if has_decrypted else None)
    found = [other for other in others if other in ready]
    return [socket, *found] if has_decrypted or socket.sock in ready else found


def read_frame(socket: Any) -> tuple[int, bytes]:
    """Channel and content of the next message, or `KEPT_ALIVE`.

    Raises:
        UnreachableError: the other side has closed the connection.
        WebSocketException, OSError: it was cut.
    """
    kind, frame = socket.recv_data_frame(control_frame=True)
    if kind == websocket.ABNF.OPCODE_CLOSE:
        raise UnreachableError("the connection ended before the command did")
    if kind not in (websocket.ABNF.OPCODE_BINARY, websocket.ABNF.OPCODE_TEXT) or not frame.data:
        return KEPT_ALIVE, b""
    return frame.data[0], frame.data[1:]


def send_frame(socket: Any, channel: int, content: bytes) -> None:
    """Raises WebSocketException, OSError: it was cut."""
    socket.send_binary(bytes([channel]) + content)

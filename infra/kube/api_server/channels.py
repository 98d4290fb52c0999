"""Reads and writes the websockets of `exec` and `portforward`, whose frames begin with a channel.

Only one thread may read and write such a connection. If one of two threads closed it, the system
could give its file descriptor to the next connection, and the other thread would use that one.
"""

import select
from typing import Any

import websocket

from infra.kube.errors import UnreachableError

KEPT_ALIVE = -1
"""A value instead of a channel: the frame has no content and only keeps the connection alive."""


def wait_readable(socket: Any, *others: Any) -> list[Any]:
    """Wait until the websocket or one of the others has something to read; return those that have.

    Bytes that TLS has decrypted already count too, although `select` does not see them.

    Args:
        socket: the websocket.
        others: further sockets, files or file descriptors.
    """
    has_decrypted = getattr(socket.sock, "pending", int)() > 0
    ready, _, _ = select.select([socket.sock, *others], [], [], 0 if has_decrypted else None)
    found = [other for other in others if other in ready]
    return [socket, *found] if has_decrypted or socket.sock in ready else found


def read_frame(socket: Any) -> tuple[int, bytes]:
    """The channel and the content of the next message, or `KEPT_ALIVE` and no content.

    Raises:
        UnreachableError: the other side has closed the connection.
        WebSocketException, OSError: the connection was cut.
    """
    kind, frame = socket.recv_data_frame(control_frame=True)
    if kind == websocket.ABNF.OPCODE_CLOSE:
        raise UnreachableError("the connection ended before the command did")
    if kind not in (websocket.ABNF.OPCODE_BINARY, websocket.ABNF.OPCODE_TEXT) or not frame.data:
        return KEPT_ALIVE, b""
    return frame.data[0], frame.data[1:]


def send_frame(socket: Any, channel: int, content: bytes) -> None:
    """Send a message. Raises WebSocketException, OSError: the connection was cut."""
    socket.send_binary(bytes([channel]) + content)

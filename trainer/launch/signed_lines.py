"""Sends the messages between the entrypoints as signed lines of JSON.

Each side first sends a random number. Every line after that carries an HMAC over its direction, its
place in the conversation and its text, under a key made of the run's key and both random numbers.
So a pod that does not hold the run's key can neither join nor end the run, nor replay messages that
it overheard. The run's key is in the variable DISTTRAIN_RUN_KEY, which a Secret gives to all pods
of a run. If the variable is not set, the lines are signed with an empty key, which keeps nobody
out.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import socket

from trainer.launch.messages import Message, from_mapping, to_mapping

RUN_KEY_VARIABLE = "DISTTRAIN_RUN_KEY"
_LINE_LIMIT_BYTES = 65536
_NONCE_BYTES = 16


class ForeignPeerError(ConnectionError):
    """The peer does not hold the key of this run, or does not speak this protocol."""


class SignedLines:
    """A connection that carries signed messages, read without blocking."""

    def __init__(self, connection: socket.socket, key: bytes, is_server: bool):
        """Send the first line, with a random number.

        `key`: the run's key. `is_server`: whether this is node 0's side of the connection.
        """
        self.connection, self.closed = connection, False
        self._key, self._is_server = key, is_server
        self._buffer, self._at_end = b"", False
        self._broken: OSError | None = None
        self._nonce, self._session = secrets.token_hex(_NONCE_BYTES), b""
        self._sent = self._received = 0
        self._unsent: list[Message] = []
        connection.setblocking(False)
        _notice_a_lost_peer(connection)
        self._send_line(self._nonce.encode())

    def peer(self) -> str:
        """Return the peer's address as a text for people."""
        try:
            return str(self.connection.getpeername()[0]).removeprefix("::ffff:")
        except OSError:
            return "an unknown address"

    def send(self, message: Message) -> None:
        """Send one short message; if the peer's first line is still missing, send it after that.

        No error is raised if the peer is gone: `receive` notices it.
        """
        if not self._session:
            self._unsent.append(message)
            return
        text = json.dumps(to_mapping(message)).encode()
        self._send_line(self._signature(self._is_server, self._sent, text) + b" " + text)
        self._sent += 1

    def receive(self) -> list[Message]:
        """Return the complete messages that have arrived.

        Raises:
            ForeignPeerError: the peer does not hold the run's key or speaks another protocol.
            ConnectionError: the peer is gone. An earlier call has returned its last messages.
        """
        while not self._at_end:
            try:
                data = self.connection.recv(4096)
            except BlockingIOError:
                break
            except OSError as error:
                self._broken, data = error, b""
            self._at_end = not data
            self._buffer += data
            if len(self._buffer) > _LINE_LIMIT_BYTES:
                raise ForeignPeerError("it does not speak the protocol of this port")
        *lines, self._buffer = self._buffer.split(b"\n")
        if self._at_end and not lines:
            raise ConnectionError(str(self._broken or "closed by the peer")) from self._broken
        return [message for line in lines for message in self._message(line)]

    def close(self) -> None:
        """Close the connection."""
        self.closed = True
        self.connection.close()

    def _message(self, line: bytes) -> list[Message]:
        if not self._session:
            self._begin(line)
            return []
        signature, _, text = line.partition(b" ")
        wanted = self._signature(not self._is_server, self._received, text)
        if not hmac.compare_digest(signature, wanted):
            raise ForeignPeerError("it does not hold the key of this run")
        self._received += 1
        try:
            return [from_mapping(json.loads(text))]
        except (ValueError, RecursionError) as error:
            raise ForeignPeerError(
                f"it does not speak the protocol of this port ({error})"
            ) from None

    def _begin(self, line: bytes) -> None:
        """Read the peer's random number, after which lines can be signed, and send what waits."""
        if len(line) != 2 * _NONCE_BYTES or not line.isalnum():
            raise ForeignPeerError("it does not speak the protocol of this port")
        ours, theirs = self._nonce.encode(), line
        nonces = ours + theirs if self._is_server else theirs + ours
        self._session = hmac.digest(self._key, nonces, hashlib.sha256)
        unsent, self._unsent = self._unsent, []
        for message in unsent:
            self.send(message)

    def _signature(self, by_server: bool, number: int, text: bytes) -> bytes:
        header = f"{'server' if by_server else 'node'} {number} ".encode()
        return hmac.new(self._session, header + text, hashlib.sha256).hexdigest().encode()

    def _send_line(self, line: bytes) -> None:
        with contextlib.suppress(OSError):
            self.connection.sendall(line + b"\n")


def _notice_a_lost_peer(connection: socket.socket) -> None:
    """Let the operating system close the connection about 30 s after the peer's machine is gone."""
    options = (
        ("TCP_KEEPIDLE", 10),  # seconds of silence before it asks
        ("TCP_KEEPINTVL", 5),  # seconds between two questions
        ("TCP_KEEPCNT", 4),  # questions without an answer
        ("TCP_USER_TIMEOUT", 30_000),  # milliseconds until what was sent has to be acknowledged
    )
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in options:
            if hasattr(socket, option):  # the names differ on macOS, which runs a single node
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

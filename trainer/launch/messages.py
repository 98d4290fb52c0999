"""The messages between the entrypoints: signed lines of JSON that are checked before their use.

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
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast, get_args

RUN_KEY_VARIABLE = "DISTTRAIN_RUN_KEY"
_LINE_LIMIT_BYTES = 65536
_NONCE_BYTES = 16


class ForeignPeerError(ConnectionError):
    """The peer does not hold the key of this run, or does not speak this protocol."""


@dataclass(frozen=True)
class Hello:
    """The first message of a node; `digest` identifies the run configuration and the code.

    `instance` differs for each start of an entrypoint, `machine` is the same for all nodes on one
    machine, and `name` is for people. `proof` names the file that the node has written to the
    volume (trainer/volume/proof.py). It is empty if the node could not write the file, or if the
    volume is not checked.
    """

    node_rank: int
    nnodes: int
    digest: str
    instance: str
    machine: str
    local_ranks: int
    name: str
    proof: str = ""


@dataclass(frozen=True)
class Start:
    """A round begins: start the ranks now."""

    round: int
    port: int
    nodes: list[int]
    """The nodes of the round, in order."""
    first_rank: int
    """The first rank of this node among all ranks of the round."""
    world_size: int
    """The number of ranks of all nodes of the round."""
    ranks_on_machine: int
    """The number of ranks of all nodes that share this node's machine."""
    address: str
    """The address at which other machines reach node 0; empty if all nodes are on one machine."""
    proofs: list[str] = field(default_factory=list[str])
    """The `proof` in the Hello of each node of the round, in the order of `nodes`."""


@dataclass(frozen=True)
class Proven:
    """The node has written to the volume and has seen what the other nodes have written.

    The times are those of trainer.volume.figures.Figures, in microseconds.
    """

    write_microseconds: int
    rename_microseconds: int
    visible_microseconds: int
    file_system: str


@dataclass(frozen=True)
class Stepped:
    """All ranks of the node have made their first update of this round."""


@dataclass(frozen=True)
class Stalled:
    """The ranks of the node do not move any more."""

    states: str
    """Where the ranks are, as trainer.watch.hang.to_text writes it."""
    seconds: int
    """For how many seconds the ranks have not moved."""


@dataclass(frozen=True)
class Failing:
    """A rank of the node has failed, and its other ranks are being ended."""


@dataclass(frozen=True)
class Regroup:
    """Save, end the ranks and connect again: the next round has more nodes."""

    reason: str


@dataclass(frozen=True)
class Stop:
    """The round is lost: end the ranks; `code` is one of trainer.launch.exit_codes."""

    reason: str
    code: int


@dataclass(frozen=True)
class Ended:
    """How the ranks of a node ended; `code` is one of trainer.launch.exit_codes."""

    code: int
    reason: str


@dataclass(frozen=True)
class Wait:
    """What the node has to wait for before its next round.

    `is_sure`: the node need not give up, because the round comes without any further node.
    """

    reason: str
    is_sure: bool


@dataclass(frozen=True)
class Refused:
    """Node 0 does not accept the node, or does not accept it yet."""

    reason: str


@dataclass(frozen=True)
class Ping:
    """Asks whether the peer is alive."""


@dataclass(frozen=True)
class Pong:
    """The answer to a Ping."""


Message = (
    Hello
    | Wait
    | Start
    | Proven
    | Stepped
    | Stalled
    | Failing
    | Regroup
    | Stop
    | Ended
    | Refused
    | Ping
    | Pong
)
_KINDS = {kind.__name__.lower(): kind for kind in get_args(Message)}
_TYPES: dict[str, type] = {
    "int": int,
    "str": str,
    "bool": bool,
    "list[int]": list,
    "list[str]": list,
}
_ITEMS: dict[str, type] = {"list[int]": int, "list[str]": str}


def to_mapping(message: Message) -> dict[str, Any]:
    """Return the message, with its kind, as a mapping of values that JSON can write."""
    return {"kind": type(message).__name__.lower(), **vars(message)}


def from_mapping(value: object) -> Message:
    """Return the message that `to_mapping` has turned into `value`.

    Raises:
        ValueError: `value` is not exactly one of the messages.
    """
    if not isinstance(value, Mapping):
        raise ValueError("a message is a mapping")
    given = dict(cast(Mapping[str, Any], value))
    kind = _KINDS.get(str(given.pop("kind", None)))
    if kind is None:
        raise ValueError("unknown kind of message")
    types = {each.name: _TYPES[str(each.type)] for each in fields(kind)}
    items = {each.name: _ITEMS.get(str(each.type)) for each in fields(kind)}
    if given.keys() != types.keys():
        raise ValueError(f"{kind.__name__} has {sorted(given)}, not {sorted(types)}")
    for name, wanted in types.items():
        if type(given[name]) is not wanted:
            raise ValueError(f"{kind.__name__}.{name} is {given[name]!r}")
        if wanted is list and any(
            type(item) is not items[name] for item in cast(list[Any], given[name])
        ):
            raise ValueError(f"{kind.__name__}.{name} is {given[name]!r}")
    return kind(**given)


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

    def _signature(self, by_server: bool, place: int, text: bytes) -> bytes:
        header = f"{'server' if by_server else 'node'} {place} ".encode()
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

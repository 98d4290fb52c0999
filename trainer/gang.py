"""All nodes start training together, and stop together when one of them is lost.

torchrun's static rendezvous has no notion of an attempt: a restarted node would meet the store,
with old keys in it, of an attempt that is already lost. So the entrypoints agree first. Node 0
listens at the master port; every entrypoint connects and says its node rank; when all are there,
node 0 tells them a fresh port and a fresh id for torchrun. The connection stays open during that
round: when one breaks, or a node says that it failed, node 0 tells the others to stop, they end
their torchrun and connect again. A port and an id are never used for two rounds.

One JSON object per line each way:
    node -> node 0   {"node_rank", "nnodes", "digest"}       waits for a round
    node 0 -> node   {"missing": [ranks]}                    who has to come before it can start
                     {"start": {"round", "port", "id"}}      run torchrun now
                     {"stop": reason, "fatal": bool}         end torchrun, the round is lost
                     {"refused": reason}                     this node does not belong here (yet)
    node -> node 0   {"ended": exit code, "reason"}          its torchrun has ended
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, cast

from trainer.exit_codes import ExitCode, RetryableError
from trainer.status_files import Ending

_LINE_LIMIT_BYTES = 65536
_CONNECT_TIMEOUT_SECONDS = 5
_SAY_EVERY_SECONDS = 10
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Round:
    """One common start of torchrun on all nodes."""

    number: int
    master_address: str
    master_port: int
    rendezvous_id: str


@dataclass(frozen=True)
class Hello:
    """What a node says when it comes; `digest` identifies the run configuration."""

    node_rank: int
    nnodes: int
    digest: str


class _Line:
    """A connection that carries JSON lines, read without blocking."""

    def __init__(self, connection: socket.socket):
        self.connection = connection
        self._buffer, self._at_end = b"", False
        connection.setblocking(False)
        _keep_alive(connection)

    def send(self, message: dict[str, Any]) -> None:
        """Send one short message. A peer that is gone is noticed when reading."""
        with contextlib.suppress(OSError):
            self.connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]]:
        """The complete messages that have arrived.

        Raises:
            ConnectionError: the peer is gone (and what it said last was returned before), or it
                does not speak this protocol.
        """
        while not self._at_end:
            try:
                data = self.connection.recv(4096)
            except BlockingIOError:
                break
            except OSError as error:
                raise ConnectionError(str(error)) from error
            self._at_end = not data
            self._buffer += data
            if len(self._buffer) > _LINE_LIMIT_BYTES:
                raise ConnectionError("not the protocol of this port")
        *lines, self._buffer = self._buffer.split(b"\n")
        if self._at_end and not lines:
            raise ConnectionError("closed by the peer")
        try:
            return [dict(json.loads(line)) for line in lines]
        except (ValueError, TypeError) as error:
            raise ConnectionError("not the protocol of this port") from error

    def close(self) -> None:
        self.connection.close()


class Coordinator:
    """Node 0's side: a thread that gathers the nodes and starts rounds."""

    def __init__(self, port: int, hello: Hello, say: Callable[[str], None]):
        """Listen at `port` on all addresses. Raises OSError where the port is taken."""
        self._expected, self._say = hello, say
        self._waiting: dict[int, _Line] = {}
        self._running: dict[int, _Line] = {}
        self._rounds = 0
        self._closing = False
        self._selector = selectors.DefaultSelector()
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        self._server = socket.create_server(("", port), family=family, dualstack_ipv6=dual)
        self._server.setblocking(False)
        self._selector.register(self._server, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="gang", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and drop all connections."""
        self._closing = True
        self._thread.join()

    def _serve(self) -> None:
        closing = False
        while not closing:
            closing = self._closing  # read first: what was sent before `close` is still served
            for key, _ in self._selector.select(timeout=0 if closing else 0.5):
                if key.fileobj is self._server:
                    self._accept()
                else:
                    self._read(cast(_Line, key.data))
        for key in list(self._selector.get_map().values()):
            cast(socket.socket, key.fileobj).close()
        self._selector.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._server.accept()
            line = _Line(connection)
            self._selector.register(connection, selectors.EVENT_READ, line)

    def _read(self, line: _Line) -> None:
        try:
            for message in line.receive():
                if "node_rank" in message:
                    self._welcome(line, message)
                elif "ended" in message:
                    self._node_ended(line, message)
        except ConnectionError as error:
            self._drop(line, f"lost the connection ({error})")

    def _welcome(self, line: _Line, message: dict[str, Any]) -> None:
        rank, expected = message["node_rank"], self._expected
        if message["nnodes"] != expected.nnodes or rank not in range(expected.nnodes):
            line.send({"refused": f"node {rank} of {message['nnodes']} is not one of the "
                                  f"{expected.nnodes} nodes of this run"})  # fmt: skip
            return
        if message["digest"] != expected.digest:
            line.send({"refused": "node 0 has another run configuration or code"})
            return
        for older in (self._waiting.get(rank), self._running.get(rank)):
            if older is not None:
                self._drop(older, "was started again")
        self._waiting[rank] = line
        missing = [r for r in range(expected.nnodes) if r not in self._waiting]
        if missing:
            for waiting in self._waiting.values():
                waiting.send({"missing": missing})
        else:
            self._start_round()

    def _start_round(self) -> None:
        self._rounds += 1
        start = {"round": self._rounds, "port": free_port(), "id": uuid.uuid4().hex}
        self._running, self._waiting = self._waiting, {}
        for line in self._running.values():
            line.send({"start": start})

    def _node_ended(self, line: _Line, message: dict[str, Any]) -> None:
        rank = self._rank_in(self._running, line)
        if rank is None:
            return
        del self._running[rank]
        if message["ended"] != ExitCode.DONE:
            fatal = message["ended"] == ExitCode.FATAL
            self._stop_round(f"node {rank}: {message['reason']}", fatal)

    def _drop(self, line: _Line, reason: str) -> None:
        """Forget a connection; if its node was training, the round is lost."""
        self._selector.unregister(line.connection)
        line.close()
        if (rank := self._rank_in(self._waiting, line)) is not None:
            del self._waiting[rank]
        if (rank := self._rank_in(self._running, line)) is not None:
            del self._running[rank]
            self._stop_round(f"node {rank} {reason}", fatal=False)

    def _stop_round(self, reason: str, fatal: bool) -> None:
        if self._running:
            self._say(f"round {self._rounds} is lost: {reason}; stopping the other nodes")
        for line in self._running.values():
            line.send({"stop": reason, "fatal": fatal})
        self._running = {}

    @staticmethod
    def _rank_in(lines: dict[int, _Line], line: _Line) -> int | None:
        return next((rank for rank, other in lines.items() if other is line), None)


class Membership:
    """A node's side of one round."""

    def __init__(self, line: _Line, started: Round, early: list[dict[str, Any]]):
        self.round = started
        self._line = line
        self._early = early

    def lost(self) -> Ending | None:
        """Why this round has to be ended, or None while it goes on."""
        try:
            messages, self._early = self._early + self._line.receive(), []
        except ConnectionError as error:
            return Ending(ExitCode.RETRYABLE, f"the connection to node 0 was lost ({error})")
        for message in messages:
            if "stop" in message:
                code = ExitCode.FATAL if message["fatal"] else ExitCode.RETRYABLE
                return Ending(code, str(message["stop"]))
        return None

    def leave(self, ending: Ending) -> None:
        """Say how torchrun ended here, and hang up."""
        self._line.send({"ended": int(ending.code), "reason": ending.reason})
        self._line.close()


def join(
    host: str,
    port: int,
    hello: Hello,
    timeout_seconds: float,
    say: Callable[[str], None],
    give_up: Callable[[], bool],
) -> Membership | None:
    """Wait for the name, for node 0, and for all nodes; then return the common round.

    `give_up` is asked about five times a second; when it says so, the result is None.

    Raises:
        RetryableError: not all were there within `timeout_seconds`.
    """
    deadline = time.monotonic() + timeout_seconds
    said_at, status, line = 0.0, "", None
    try:
        while not give_up():
            if line is None:
                line, status = _connect(host, port)
                if line is not None:
                    line.send(asdict(hello))
            else:
                messages: list[dict[str, Any]]
                try:
                    messages = line.receive()
                except ConnectionError as error:
                    messages = [{"refused": f"node 0 at {host}:{port} hung up ({error})"}]
                for position, message in enumerate(messages):
                    if "start" in message:
                        started = _round_of(message["start"], line)
                        line, joined = None, line
                        return Membership(joined, started, messages[position + 1 :])
                    if "missing" in message:
                        names = ", ".join(map(str, message["missing"]))
                        status = f"waiting for node(s) {names} to join"
                    elif "refused" in message:
                        status = message["refused"]
                        line.close()
                        line = None
                        break
            now = time.monotonic()
            if now > deadline:
                raise RetryableError(f"gave up after {timeout_seconds:g} s: {status}")
            if status and now - said_at > _SAY_EVERY_SECONDS:
                say(status)
                said_at = now
            time.sleep(_POLL_SECONDS)
        return None
    finally:
        if line is not None:
            line.close()


def _round_of(start: dict[str, Any], line: _Line) -> Round:
    """The round that node 0 has announced; torchrun gets the address that just worked."""
    address = str(line.connection.getpeername()[0]).removeprefix("::ffff:")
    return Round(start["round"], address, start["port"], start["id"])


def _connect(host: str, port: int) -> tuple[_Line | None, str]:
    """A connection, or what is in its way. The name is looked up anew each time."""
    try:
        connection = socket.create_connection((host, port), _CONNECT_TIMEOUT_SECONDS)
    except socket.gaierror as error:
        return None, f"waiting for the DNS name {host} ({error.strerror})"
    except OSError as error:
        return None, f"waiting for node 0 at {host}:{port} ({error.strerror or error})"
    return _Line(connection), ""


def _keep_alive(connection: socket.socket) -> None:
    """Notice within half a minute that the peer's machine or network is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):  # the names differ on macOS, which runs a single node
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def free_port() -> int:
    """A TCP port that nobody listens at right now."""
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])

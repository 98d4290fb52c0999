"""Node 0's side of the connections: it learns which node is at the other end, or refuses it.

A connection belongs to a node once a Hello of this run has arrived by it. Two entrypoints with the
same node rank are rivals: the second one waits until the first one does not answer a Ping.
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trainer.launch.messages import Hello, Message, Ping, Pong, Refused
from trainer.launch.signed_lines import ForeignPeerError, SignedLines
from trainer.watch.connections import is_silent
from trainer.watch.hang import AS_BY

PING_SECONDS = 10.0
CUT_OFF = "is cut off"
"""The beginning of the reason why a node has left, if the network does not reach the node."""
_UNREACHED = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)
_HELLO_SECONDS = 20.0
_MOST_STRANGERS = 256
_SAY_EVERY_SECONDS = 10.0


@dataclass(eq=False)
class _Peer:
    """One connection, and what is known about the entrypoint at its other end."""

    line: SignedLines
    since: float
    hello: Hello | None = None
    pinged_at: float | None = None
    rivals: list[_Peer] = field(default_factory=list["_Peer"])  # wait to take its place


class Reception:
    """Listens for the nodes of one run, and passes on their messages."""

    def __init__(
        self,
        port: int,
        expected: Hello,
        key: bytes,
        say: Callable[[str], None],
        joined: Callable[[int], None],
        heard: Callable[[int, Message], None],
        left: Callable[[int, str], None],
        ping_seconds: float = PING_SECONDS,
    ):
        """Listen at `port` on all addresses.

        Args:
            port: The TCP port.
            expected: The Hello of node 0 itself; other nodes must have the same nnodes and digest.
            key: The run's key; see trainer.launch.signed_lines.
            say: Prints a line.
            joined: Called with the node rank of a node that has connected.
            heard: Called with the node rank of a node and a message of it.
            left: Called with the node rank of a node that is no longer connected, and the reason.
            ping_seconds: How long a node may leave a Ping unanswered before a rival takes its
                place.

        Raises:
            OSError: the port is taken.
        """
        self._expected, self._key, self._say = expected, key, say
        self._joined, self._heard, self._left = joined, heard, left
        self._ping_seconds = ping_seconds
        self._peers: list[_Peer] = []
        self._nodes: dict[int, _Peer] = {}
        self._said: dict[str, float] = {}
        self._selector = selectors.DefaultSelector()
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        self._server = socket.create_server(("", port), family=family, dualstack_ipv6=dual)
        self._server.setblocking(False)
        self._selector.register(self._server, selectors.EVENT_READ)

    def serve(self, timeout_seconds: float) -> None:
        """Handle what has arrived; if nothing has, wait for it for up to `timeout_seconds`."""
        for key, _ in self._selector.select(timeout_seconds):
            if key.fileobj is self._server:
                self._accept()
            else:
                self._read(key.data)
        self._drop_the_silent()

    def close(self) -> None:
        """Stop listening and drop all connections."""
        for key in list(self._selector.get_map().values()):
            with contextlib.suppress(OSError):
                key.fileobj.close()  # pyright: ignore
        self._selector.close()

    def hello_of(self, node: int) -> Hello:
        """Return the Hello of a connected node."""
        hello = self._nodes[node].hello
        assert hello is not None
        return hello

    def send(self, node: int, message: Message) -> None:
        """Send a message to a connected node."""
        self._nodes[node].line.send(message)

    def drop(self, node: int, reason: str) -> None:
        """Close the connection of a node."""
        self._drop(self._nodes[node], reason)

    def is_silent(self, node: int) -> bool:
        """Whether a node is connected but does not acknowledge what was sent to it."""
        peer = self._nodes.get(node)
        return peer is not None and is_silent(peer.line.connection)

    def own_address(self, node: int) -> str:
        """Return this machine's address to which the node is connected; empty if it is gone."""
        with contextlib.suppress(OSError):
            address = str(self._nodes[node].line.connection.getsockname()[0])
            return address.removeprefix("::ffff:")
        return ""

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._server.accept()
            if sum(peer.hello is None for peer in self._peers) >= _MOST_STRANGERS:
                connection.close()
                return
            peer = _Peer(SignedLines(connection, self._key, is_server=True), time.monotonic())
            self._selector.register(connection, selectors.EVENT_READ, peer)
            self._peers.append(peer)

    def _read(self, peer: _Peer) -> None:
        if peer.line.closed:  # an earlier event of the same batch dropped it
            return
        try:
            messages = peer.line.receive()
        except ForeignPeerError as error:
            self._say_now_and_then(f"closed a connection from {peer.line.peer()}: {error}")
            peer.line.send(Refused("this is node 0 of a run with another key"))
            self._drop(peer, f"was not understood ({error})")
        except ConnectionError as error:
            is_cut_off = getattr(error.__cause__, "errno", None) in _UNREACHED
            why = f"{CUT_OFF}: it acknowledges nothing any more, {AS_BY}"
            self._drop(peer, f"{why if is_cut_off else 'lost the connection'} ({error})")
        else:
            for message in messages:
                if not peer.line.closed:
                    self._handle(peer, message)

    def _handle(self, peer: _Peer, message: Message) -> None:
        peer.pinged_at = None
        if isinstance(message, Pong):
            self._refuse_rivals(peer)
        elif isinstance(message, Hello) and peer.hello is None:
            self._welcome(peer, message)
        elif isinstance(message, Hello):
            self._drop(peer, "said twice who it is")
        elif (node := self._node_of(peer)) is not None:
            self._heard(node, message)

    def _welcome(self, peer: _Peer, hello: Hello) -> None:
        node, nnodes = hello.node_rank, self._expected.nnodes
        if hello.nnodes != nnodes or node not in range(nnodes):
            reason = f"node {node} of {hello.nnodes} is not one of the {nnodes} nodes of this run"
            peer.line.send(Refused(reason))
            return
        if hello.digest != self._expected.digest:
            peer.line.send(Refused("node 0 has another run configuration or code"))
            return
        peer.hello = hello
        older = self._nodes.get(node)
        if older is not None and older.hello and older.hello.instance == hello.instance:
            self._read(older)  # its last messages may be in the same batch of events
            self._drop(older, "was started again")
            older = self._nodes.get(node)
        if older is None:
            self._admit(peer, node)
        else:  # two entrypoints have one rank: the second waits for the answer of the first
            older.rivals.append(peer)
            if older.pinged_at is None:
                older.pinged_at = time.monotonic()
                older.line.send(Ping())

    def _admit(self, peer: _Peer, node: int) -> None:
        self._nodes[node] = peer
        self._joined(node)

    def _refuse_rivals(self, peer: _Peer) -> None:
        """Refuse the entrypoints that claim the rank of `peer`, which has just shown it lives."""
        rivals, peer.rivals = peer.rivals, []
        for rival in rivals:
            if peer.hello is None or rival.hello is None or rival.line.closed:
                continue
            reason = (
                f"node {peer.hello.node_rank} is here twice: {peer.hello.name} at "
                f"{peer.line.peer()} is connected and answers, {rival.hello.name} at "
                f"{rival.line.peer()} says the same rank; end one of them"
            )
            self._say_now_and_then(reason)
            rival.line.send(Refused(reason))
            self._drop(rival, "is here twice")

    def _drop_the_silent(self) -> None:
        """Close the connections that have not sent a Hello in time or have not answered a Ping."""
        now = time.monotonic()
        for peer in list(self._peers):
            if peer.hello is None and now - peer.since > _HELLO_SECONDS:
                self._drop(peer, "said nothing")
            elif peer.pinged_at is not None and now - peer.pinged_at > self._ping_seconds:
                self._drop(peer, "was started again")

    def _drop(self, peer: _Peer, reason: str) -> None:
        """Close and forget a connection; its first rival takes its place."""
        if peer.line.closed:
            return
        self._selector.unregister(peer.line.connection)
        peer.line.close()
        self._peers.remove(peer)
        for known in self._peers:
            if peer in known.rivals:
                known.rivals.remove(peer)
        if (node := self._node_of(peer)) is not None:
            del self._nodes[node]
            self._left(node, reason)
        first, *others = peer.rivals or [None]
        if first is not None and not first.line.closed and first.hello is not None:
            self._admit(first, first.hello.node_rank)
        for rival in others:  # the others connect again by themselves
            if rival is not None:
                self._drop(rival, "is here twice")

    def _node_of(self, peer: _Peer) -> int | None:
        return next((node for node, other in self._nodes.items() if other is peer), None)

    def _say_now_and_then(self, text: str) -> None:
        """Print a line, but the same line at most once in ten seconds."""
        now = time.monotonic()
        self._said = {t: at for t, at in self._said.items() if now - at < _SAY_EVERY_SECONDS}
        if text not in self._said and len(self._said) < _MOST_STRANGERS:
            self._said[text] = now
            self._say(text)

"""Node 0's side of the connections: which node is at the other end, and who is kept out.

A connection becomes a node's when its first message is a Hello of this run. Two entrypoints with
one rank are rivals: the second waits until the first gives no answer.
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trainer.launch.messages import (
    ForeignPeerError,
    Hello,
    Message,
    Ping,
    Pong,
    Refused,
    SignedLines,
)
from trainer.watch.connections import is_silent
from trainer.watch.hang import AS_BY

PING_SECONDS = 10.0
CUT_OFF = "is cut off"
"""The reason why a node has left begins so where the network does not reach it any more."""
_UNREACHED = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)
_HELLO_SECONDS = 20.0
_MOST_STRANGERS = 256
_SAY_EVERY_SECONDS = 10.0


@dataclass(eq=False)
class _Peer:
    """One connection, and what is known about it."""

    line: SignedLines
    since: float
    hello: Hello | None = None
    pinged_at: float | None = None
    rivals: list[_Peer] = field(default_factory=list["_Peer"])  # have its rank and wait for its end


class Reception:
    """Listens for the nodes of one run, and passes on what they say."""

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
            port: TCP port.
            expected: node 0's own hello; others must have the same nnodes and digest.
            key: of the run; see trainer.launch.messages.
            say: prints a line.
            joined: called with the rank of a node that has connected.
            heard: called with the rank of a node and what it has said.
            left: called with the rank of a node that is no longer connected, and why.
            ping_seconds: a node that says nothing for so long may be replaced by another.

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
        """Handle what has come, or what comes first within the time."""
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
        """What a connected node has said about itself."""
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
        """Whether a connected node does not acknowledge what was sent to it."""
        peer = self._nodes.get(node)
        return peer is not None and is_silent(peer.line.connection)

    def own_address(self, node: int) -> str:
        """The address of this machine that the node is connected to; empty if it is gone."""
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
        if peer.line.closed:  # dropped by an event of the same batch
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
            self._read(older)  # what it said last may have come in the same batch of events
            self._drop(older, "was started again")
            older = self._nodes.get(node)
        if older is None:
            self._admit(peer, node)
        else:  # two entrypoints have one rank: the second waits until the first gives no answer
            older.rivals.append(peer)
            if older.pinged_at is None:
                older.pinged_at = time.monotonic()
                older.line.send(Ping())

    def _admit(self, peer: _Peer, node: int) -> None:
        self._nodes[node] = peer
        self._joined(node)

    def _refuse_rivals(self, peer: _Peer) -> None:
        """Refuse the others that claim the rank of `peer`, which has just shown that it lives."""
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
        """Close the connections that sent no Hello in time, or no Pong."""
        now = time.monotonic()
        for peer in list(self._peers):
            if peer.hello is None and now - peer.since > _HELLO_SECONDS:
                self._drop(peer, "said nothing")
            elif peer.pinged_at is not None and now - peer.pinged_at > self._ping_seconds:
                self._drop(peer, "was started again")

    def _drop(self, peer: _Peer, reason: str) -> None:
        """Close and forget a connection; the next one that claims its rank takes its place."""
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
        for rival in others:  # they are here twice, and come again by themselves
            if rival is not None:
                self._drop(rival, "is here twice")

    def _node_of(self, peer: _Peer) -> int | None:
        return next((node for node, other in self._nodes.items() if other is peer), None)

    def _say_now_and_then(self, text: str) -> None:
        """Print a line that may be repeated very often at most once in ten seconds."""
        now = time.monotonic()
        self._said = {t: at for t, at in self._said.items() if now - at < _SAY_EVERY_SECONDS}
        if text not in self._said and len(self._said) < _MOST_STRANGERS:
            self._said[text] = now
            self._say(text)

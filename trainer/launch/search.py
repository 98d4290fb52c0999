"""Looks for node 0 in several ways at once, and uses the first connection.

The DNS answer for a pod's name can be out of date for half a minute, because the DNS servers of
clusters cache their answers, also the answer that there is no such name. The address that node 0
notes on the volume (noted_address.py) is up to date at once, but a volume may not answer. So no way
waits for another: each has a thread of its own.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_OFTEN_SECONDS = 10.0
_SELDOM_PAUSE_SECONDS = 2.0


@dataclass(frozen=True)
class Way:
    """One way to learn where node 0 is.

    Args:
        host: Returns the name or address of node 0, or an empty text if this way does not know it
            yet. The call may hang, and may raise OSError.
        connect_seconds: The longest attempt to connect.
        pause_seconds: The pause between two attempts; if not `is_told`, only in the first ten
            seconds, and longer after them.
        is_told: Whether the search's status says what this way waits for.
    """

    host: Callable[[], str]
    connect_seconds: float
    pause_seconds: float
    is_told: bool = False


def by_name(host: str) -> Way:
    """Return the way by the host name of node 0, which is looked up for each attempt."""
    return Way(lambda: host, connect_seconds=5.0, pause_seconds=0.1, is_told=True)


def by_address(ask: Callable[[], str]) -> Way:
    """Return the way by an address that `ask` returns.

    The attempts to connect are short: the pod of an old address is gone and gives no answer.
    """
    return Way(ask, connect_seconds=1.0, pause_seconds=0.25)


def asked_once(noted: Callable[[], str], strangers: set[str]) -> Callable[[], str]:
    """Return a function that calls `noted`, but not while an earlier call hangs.

    Otherwise more and more threads could hang in it.

    `strangers`: addresses to leave out; an old address may by now belong to a pod of another run.
    """
    asking = threading.Lock()

    def ask() -> str:
        if not asking.acquire(blocking=False):
            return ""
        try:
            address = noted()
        finally:
            asking.release()
        return "" if address in strangers else address

    return ask


@dataclass(frozen=True)
class Found:
    """A connection to node 0, the host name or address it was made to, and the way that knew it."""

    connection: socket.socket
    host: str
    way: Way


class Search:
    """Tries all ways until one has found node 0, or until the search is closed.

    Args:
        ways: The ways to learn where node 0 is.
        port: The TCP port at which node 0 listens.
    """

    def __init__(self, ways: Sequence[Way], port: int) -> None:
        self.status = ""
        """What the search waits for, as a text for people."""
        self._port = port
        self._lock, self._over = threading.Lock(), threading.Event()
        self._found: Found | None = None
        for way in ways:
            threading.Thread(target=self._seek, args=(way,), name="search", daemon=True).start()

    def taken(self) -> Found | None:
        """Return what was found, or None. It is returned once; the caller closes the connection."""
        with self._lock:
            found, self._found = self._found, None
        return found

    def close(self) -> None:
        """End the search. An attempt that still runs closes the connection that it makes."""
        with self._lock:
            self._over.set()
        if found := self.taken():
            found.connection.close()

    def _seek(self, way: Way) -> None:
        begin = time.monotonic()
        while not self._over.is_set():
            if found := self._attempt(way):
                with self._lock:
                    is_first = not self._over.is_set()
                    if is_first:
                        self._over.set()
                        self._found = found
                if not is_first:
                    found.connection.close()
                return
            is_early = time.monotonic() - begin < _OFTEN_SECONDS or way.is_told
            self._over.wait(way.pause_seconds if is_early else _SELDOM_PAUSE_SECONDS)

    def _attempt(self, way: Way) -> Found | None:
        host = ""
        try:
            if host := way.host():
                address = (host, self._port)
                return Found(socket.create_connection(address, way.connect_seconds), host, way)
        except socket.gaierror as error:
            self._tell(way, f"waiting for the DNS name {host} ({error.strerror})")
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            self._tell(way, f"waiting for node 0 at {host}:{self._port} ({reason})")
        return None

    def _tell(self, way: Way, status: str) -> None:
        if way.is_told:
            self.status = status

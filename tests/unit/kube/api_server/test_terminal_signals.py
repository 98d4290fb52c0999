"""A terminal that is connected to a pod reacts to signals at once, whichever thread receives them.

In most of these tests another thread receives the signals, so that they interrupt no wait of the
main thread. A signal that arrives just before a wait begins does not interrupt the wait either.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import struct
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import ioctl

import pytest
import websocket

from infra.kube.api_server import terminal
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.errors import UnreachableError

LIMIT_SECONDS = 20
HELLO = bytes([0x82, 6, 1]) + b"hello"
OUR_EXIT = str(128 + signal.SIGTERM)


def end(number: int, _frame: object) -> None:
    """End the process, as the signal handler of the commands does."""
    raise SystemExit(128 + number)


@pytest.fixture
def other_thread() -> Iterator[None]:
    """Let another thread receive the signals of this process, because the main thread blocks
    them.
    """
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait)
    thread.start()
    taken = {signal.SIGTERM, signal.SIGWINCH}
    before = signal.signal(signal.SIGTERM, end)
    signal.pthread_sigmask(signal.SIG_BLOCK, taken)
    yield
    signal.pthread_sigmask(signal.SIG_UNBLOCK, taken)
    signal.signal(signal.SIGTERM, before)
    is_over.set()
    thread.join()


class Window:
    """A pseudo-terminal in place of the user's, and a socket in place of the pod's server."""

    def __init__(self) -> None:
        self.keyboard, self.screen = pty.openpty()
        self.here, self.there = socket.socketpair()
        self.there.settimeout(LIMIT_SECONDS)
        self.has_waited_for_ever = False

    def show(self) -> None:
        """Let the pod print something, and wait until it is on the user's screen."""
        self.there.sendall(HELLO)
        assert os.read(self.keyboard, 100) == b"hello"

    def resize(self, columns: int) -> None:
        ioctl(self.keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def next_size(self) -> int:
        """Return the number of columns that the client sends next."""
        head = self.there.recv(2)
        assert head[1] & 0x80, "a client masks what it sends"
        mask, masked = self.there.recv(4), self.there.recv(head[1] & 0x7F)
        content = bytes(byte ^ mask[place % 4] for place, byte in enumerate(masked))
        assert content[0] == terminal.RESIZE
        return int(json.loads(content[1:])["Width"])

    def close(self) -> None:
        for each in (self.here, self.there):
            each.close()
        os.close(self.keyboard)
        os.close(self.screen)


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> Iterator[Window]:
    """Yield a window whose connection the API client uses."""
    made = Window()
    client = websocket.WebSocket()
    client.sock, client.connected = made.here, True
    monkeypatch.setattr(Api, "websocket", lambda *_: client)
    yield made
    made.close()


@contextmanager
def beside(window: Window, act: Callable[[], object]) -> Iterator[None]:
    """Run `act` in a thread beside the block. If the block does not end, close the connection and
    note that it waited forever.
    """
    is_left = threading.Event()

    def serve() -> None:
        try:
            act()
        finally:
            window.has_waited_for_ever = not is_left.wait(LIMIT_SECONDS)
            if window.has_waited_for_ever:
                window.there.shutdown(socket.SHUT_RDWR)

    server = threading.Thread(target=serve)
    server.start()
    try:
        yield
    finally:
        is_left.set()
        server.join()


def interact(window: Window) -> int:
    """Connect the window to a pod, and return the exit status of the command there."""
    api = Api(Access(kubeconfig="{}"))
    return terminal.interact(api, "/pods/a", "trainer", ["sh"], window.screen)


@pytest.mark.usefixtures("other_thread")
def test_waiting_terminal_ends_at_a_signal(window: Window) -> None:
    """A SIGTERM ends a terminal that waits for its pod, and the user's terminal is restored."""
    before = termios.tcgetattr(window.screen)

    def act() -> None:
        window.show()
        os.kill(os.getpid(), signal.SIGTERM)

    with beside(window, act), pytest.raises(SystemExit, match=OUR_EXIT):
        interact(window)
    assert not window.has_waited_for_ever
    assert termios.tcgetattr(window.screen) == before


@pytest.mark.usefixtures("other_thread")
def test_waiting_terminal_passes_a_new_size_on(window: Window) -> None:
    """A new size of the window reaches the pod while nothing else happens."""
    sizes = list[int]()

    def act() -> None:
        window.show()
        sizes.append(window.next_size())
        window.resize(132)
        os.kill(os.getpid(), signal.SIGWINCH)
        try:
            sizes.append(window.next_size())
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    window.resize(80)
    with beside(window, act), pytest.raises(SystemExit, match=OUR_EXIT):
        interact(window)
    assert sizes == [80, 132]


def test_signals_are_as_before_afterwards(window: Window) -> None:
    """After the connection has ended, the handler of SIGWINCH and Python's own wake-up file
    descriptor are as before.
    """

    def act() -> None:
        window.show()
        window.there.shutdown(socket.SHUT_RDWR)

    here, there = socket.socketpair()
    there.setblocking(False)
    with here, there:
        wake_before = signal.set_wakeup_fd(there.fileno())
        resized = signal.getsignal(signal.SIGWINCH)
        with beside(window, act), pytest.raises(UnreachableError):
            interact(window)
        assert signal.getsignal(signal.SIGWINCH) == resized
        assert signal.set_wakeup_fd(wake_before) == there.fileno()

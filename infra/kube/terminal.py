"""A terminal in a pod: keys go there, what it shows comes here, and the window's size follows."""

import json
import os
import select
import signal
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import websocket

from infra.kube.api import Api
from infra.kube.errors import UnreachableError
from infra.kube.exec_stream import ERROR, STDIN, STDOUT, exit_code_of
from infra.kube.say import shorten

RESIZE = 4  # channel of v4.channel.k8s.io
BLOCK_BYTES = 64 << 10
SILENCE_SECONDS = 3600.0  # a person may think for long


def interact(api: Api, pod_path: str, container: str, command: list[str], here: int) -> int:
    """Run a command with a terminal of its own; returns its exit status.

    Args:
        api: the cluster.
        pod_path: the pod's path.
        container: of the pod.
        command: program and arguments.
        here: file descriptor of a terminal, from which keys are read and to which is written.

    Raises:
        UnreachableError: the connection was cut or refused; the terminal is as before.
    """
    query = [("container", container), *(("command", word) for word in command)]
    query += [(name, "true") for name in ("stdin", "stdout", "tty")]
    try:
        socket = api.client.websocket(f"{pod_path}/exec", query)
    except (websocket.WebSocketException, OSError) as error:
        raise UnreachableError(shorten(str(error), 300)) from None
    socket.settimeout(SILENCE_SECONDS)
    woken, wake = os.pipe()
    shown = _Shown(socket, here, lambda: os.write(wake, b"e"))
    shown.start()
    try:
        with _raw(here), _on_new_size(lambda: os.write(wake, b"s")):
            _send(socket, RESIZE, _size(here))
            _pass_keys_on(socket, here, woken)
    finally:
        socket.close(timeout=1)
        shown.join()
        os.close(woken)
        os.close(wake)
    return shown.exit_code()


class _Shown(threading.Thread):
    """Copies what the pod shows to the terminal, until the command or the connection has ended."""

    def __init__(self, socket: Any, here: int, on_end: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._socket, self._here, self._on_end = socket, here, on_end
        self._status: dict[str, Any] | None = None
        self._problem = "the connection ended before the command did"

    def run(self) -> None:
        try:
            while self._status is None and (data := self._socket.recv()):
                frame = data.encode() if isinstance(data, str) else data
                if frame[0] == STDOUT:
                    _write_all(self._here, frame[1:])
                elif frame[0] == ERROR and frame[1:]:
                    self._status = json.loads(frame[1:])
        except (websocket.WebSocketException, OSError) as error:
            self._problem = f"the connection was cut: {shorten(str(error), 300)}"
        finally:
            self._on_end()

    def exit_code(self) -> int:
        """Raises UnreachableError where the command's end was not seen."""
        if self._status is None:
            raise UnreachableError(self._problem)
        return exit_code_of(self._status)


def _pass_keys_on(socket: Any, here: int, woken: int) -> None:
    """Until the other direction has ended. A closed terminal ends the command's input."""
    watched = [here, woken]
    with suppress(websocket.WebSocketException, BrokenPipeError):
        while True:
            ready, _, _ = select.select(watched, [], [])
            if woken in ready:
                reasons = os.read(woken, BLOCK_BYTES)
                if b"e" in reasons:
                    return
                _send(socket, RESIZE, _size(here))
            if here in ready:
                keys = _read(here)
                if not keys:
                    return
                _send(socket, STDIN, keys)


def _read(here: int) -> bytes:
    try:
        return os.read(here, BLOCK_BYTES)
    except OSError:  # the window was closed
        return b""


def _send(socket: Any, channel: int, content: bytes) -> None:
    socket.send_binary(bytes([channel]) + content)


def _size(here: int) -> bytes:
    columns, lines = os.get_terminal_size(here)
    return json.dumps({"Width": columns, "Height": lines}).encode()


def _write_all(here: int, content: bytes) -> None:
    while content:
        content = content[os.write(here, content) :]


@contextmanager
def _raw(here: int) -> Iterator[None]:
    """Ctrl-C and all other keys go to the pod; afterwards the terminal is as before."""
    before = termios.tcgetattr(here)
    tty.setraw(here)
    try:
        yield
    finally:
        with suppress(termios.error):  # the window was closed
            termios.tcsetattr(here, termios.TCSADRAIN, before)


@contextmanager
def _on_new_size(act: Callable[[], object]) -> Iterator[None]:
    def on_signal(_number: int, _frame: FrameType | None) -> None:
        act()

    before = signal.signal(signal.SIGWINCH, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)

"""Connects the user's terminal to a command in a pod: keys, output, and the window's size."""

import json
import os
import signal
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import websocket

from infra.kube.api_server.api import Api
from infra.kube.api_server.channels import read_frame, send_frame, wait_readable
from infra.kube.api_server.exec_stream import ERROR, STDIN, STDOUT, begin, cut, exit_code_of
from infra.kube.errors import UnreachableError

RESIZE = 4  # a channel of the protocol v4.channel.k8s.io
BLOCK_BYTES = 64 << 10
FRAME_SECONDS = 60.0  # the longest time for the rest of a message that has begun


def interact(api: Api, pod_path: str, container: str, command: list[str], here: int) -> int:
    """Run a command in a pod with a terminal, and return its exit status.

    Args:
        api: the cluster.
        pod_path: the path of the pod.
        container: the container of the pod.
        command: the program and its arguments.
        here: the file descriptor of the user's terminal. Keys are read from it, and the command's
            output is written to it.

    Raises:
        ApiError: with status 403: these credentials may not run commands in the pod.
        UnreachableError: the connection was cut or refused. The terminal is restored.
    """
    socket = begin(api, pod_path, container, command, ("stdin", "stdout", "tty"))
    socket.settimeout(FRAME_SECONDS)
    woken, wake = os.pipe()
    try:
        with _raw(here), _signals_wake(wake):
            send_frame(socket, RESIZE, _size(here))
            return exit_code_of(_converse(socket, here, woken))
    except (websocket.WebSocketException, OSError) as error:
        raise cut(error) from None
    finally:
        socket.close(timeout=1)
        os.close(woken)
        os.close(wake)


def _converse(socket: Any, here: int, woken: int) -> dict[str, Any]:
    """Pass input and output on until the command ends; return its end, as a Status object."""
    while True:
        ready = wait_readable(socket, here, woken)
        if socket in ready:
            channel, content = read_frame(socket)
            if channel == STDOUT:
                _write_all(here, content)
            elif channel == ERROR and content:
                return json.loads(content)
        if woken in ready:
            os.read(woken, BLOCK_BYTES)
            send_frame(socket, RESIZE, _size(here))
        if here in ready:
            keys = _read(here)
            if not keys:
                raise UnreachableError("the terminal was closed")
            send_frame(socket, STDIN, keys)


def _read(here: int) -> bytes:
    try:
        return os.read(here, BLOCK_BYTES)
    except OSError:  # The window was closed.
        return b""


def _size(here: int) -> bytes:
    columns, lines = os.get_terminal_size(here)
    return json.dumps({"Width": columns, "Height": lines}).encode()


def _write_all(here: int, content: bytes) -> None:
    while content:
        content = content[os.write(here, content) :]


@contextmanager
def _raw(here: int) -> Iterator[None]:
    """Send all keys to the pod, also Ctrl-C, while the block runs; restore the terminal then."""
    before = termios.tcgetattr(here)
    tty.setraw(here)
    try:
        yield
    finally:
        with suppress(termios.error):  # The window was closed.
            termios.tcsetattr(here, termios.TCSADRAIN, before)


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    """A signal handler without effect, for a signal that is noticed in another way."""


@contextmanager
def _signals_wake(wake: int) -> Iterator[None]:
    """While the block runs, each signal writes to `wake`, also one for a new size of the window.

    Python runs the handler of a signal only between two of its own steps. If a signal comes just
    before `select` begins to wait, or if the system delivers it to another thread, its handler
    would only run once something else ends that wait. A `kill` would then have no effect.
    """
    os.set_blocking(wake, False)
    resized = signal.signal(signal.SIGWINCH, _do_nothing)
    woken_before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(woken_before)
        signal.signal(signal.SIGWINCH, resized)

"""Runs a command in a pod over a websocket, and sends bytes to its standard input."""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import websocket

from infra.kube.api_server.api import Api
from infra.kube.api_server.channels import send_frame
from infra.kube.errors import UnreachableError
from infra.kube.objects import part, parts
from infra.kube.say import shorten

STDIN, STDOUT, STDERR, ERROR = 0, 1, 2, 3  # channels of v4.channel.k8s.io
SILENCE_SECONDS = 60.0  # after so long without a byte the connection counts as dead
LIMIT_SECONDS = 6 * 3600.0  # the longest time for one command; pods of tasks end then too
STDERR_BYTES = 64 << 10  # how much of the end of stderr is kept

Sink = Callable[[memoryview], object]


@dataclass(frozen=True)
class Ended:
    """The exit code and the output of a command that has ended."""

    exit_code: int
    stdout: str
    stderr: str


def execute(
    api: Api,
    pod_path: str,
    container: str,
    command: list[str],
    blocks: Iterable[bytes] | None = None,
) -> Ended:
    """Run a command in a pod, and send blocks of bytes to its standard input.

    The standard input is not closed after the last block, so the command has to know by itself when
    it has received all bytes.

    Args:
        api: the cluster.
        pod_path: the path of the pod.
        container: the container of the pod.
        command: the program and its arguments.
        blocks: bytes for standard input; None: the command reads the end of its input at once.

    Raises:
        ApiError: with status 403: these credentials may not run commands in the pod.
        UnreachableError: the connection was cut or refused. The command may have done a part of
            its work.
    """
    collected = bytearray()
    ended = stream(api, pod_path, container, command, collected.extend, blocks)
    return replace(ended, stdout=collected.decode(errors="replace"))


def stream(
    api: Api,
    pod_path: str,
    container: str,
    command: list[str],
    sink: Sink,
    blocks: Iterable[bytes] | None = None,
    limit_seconds: float = LIMIT_SECONDS,
    silence_seconds: float = SILENCE_SECONDS,
) -> Ended:
    """Run a command in a pod and pass its standard output on as it arrives.

    The output is not collected, so the use of memory stays constant.

    Args:
        api, pod_path, container, command, blocks: as for `execute`.
        sink: takes each block of standard output. A block is valid only during the call. An error
            that it raises closes the connection and is raised again here.
        limit_seconds: the longest time for the command.
        silence_seconds: the longest time without a byte.

    Returns:
        How the command ended. Its `stdout` is empty.

    Raises:
        ApiError: as for `execute`.
        UnreachableError: as for `execute`, or a time limit is reached.
    """
    channels = ("stdout", "stderr") if blocks is None else ("stdin", "stdout", "stderr")
    began = time.monotonic()
    socket = begin(api, pod_path, container, command, channels)
    try:
        socket.settimeout(silence_seconds)
        for block in blocks or ():
            _send(socket, block)
        status, stderr = _read_to_the_end(socket, sink, began, limit_seconds)
    finally:
        socket.close(timeout=1)
    return Ended(exit_code_of(status), "", stderr)


def begin(
    api: Api, pod_path: str, container: str, command: list[str], channels: Iterable[str]
) -> websocket.WebSocket:
    """Begin a command in a pod, and return the websocket to it.

    Args:
        api, pod_path, container, command: as for `execute`.
        channels: what the websocket carries, such as `stdout` or `tty`.

    Raises:
        ApiError: as for `execute`.
        UnreachableError: the connection was refused.
    """
    query = [("container", container), *(("command", word) for word in command)]
    query += [(name, "true") for name in channels]
    try:
        return api.websocket(f"{pod_path}/exec", query)
    except (websocket.WebSocketException, OSError) as error:
        raise UnreachableError(shorten(str(error), 300)) from None


def _read_to_the_end(
    socket: websocket.WebSocket, sink: Sink, began: float, limit_seconds: float
) -> tuple[dict[str, Any], str]:
    """Pass standard output on until the command ends.

    Returns:
        The Status object that says how the command ended, and the end of its standard error.

    Raises:
        UnreachableError: the connection was cut, or the command takes longer than the limit.
    """
    stderr = bytearray()
    while True:
        channel, content = _frame(socket)
        if channel == STDOUT:
            sink(content)
        elif channel == STDERR:
            stderr += content
            del stderr[:-STDERR_BYTES]
        elif channel == ERROR and content:  # The first message of this channel is empty.
            return json.loads(bytes(content)), stderr.decode(errors="replace")
        if time.monotonic() - began > limit_seconds:
            raise UnreachableError(f"the command took longer than {limit_seconds:.0f} s")


def _send(socket: websocket.WebSocket, block: bytes) -> None:
    try:
        send_frame(socket, STDIN, block)
    except (websocket.WebSocketException, OSError) as error:
        raise cut(error) from None


def _frame(socket: websocket.WebSocket) -> tuple[int, memoryview]:
    try:
        data = socket.recv()
    except (websocket.WebSocketException, OSError) as error:
        raise cut(error) from None
    frame = data.encode() if isinstance(data, str) else data
    if not frame:
        raise UnreachableError("the connection ended before the command did")
    return frame[0], memoryview(frame)[1:]


def cut(error: Exception) -> UnreachableError:
    """The error to raise if a connection broke with `error`."""
    return UnreachableError(f"the connection was cut: {shorten(str(error), 300)}")


def exit_code_of(status: dict[str, Any]) -> int:
    """The exit code in the Status object from the error channel. This function is pure.

    Raises:
        UnreachableError: there is none: the command could not be started, or its end is not known.
    """
    if status.get("status") == "Success":
        return 0
    for cause in parts(part(status, "details"), "causes"):
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise UnreachableError(shorten(str(status.get("message") or status)))

"""Runs a command in a pod, with bytes to its standard input, over a websocket."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import websocket

from infra.kube.api import Api
from infra.kube.errors import UnreachableError
from infra.kube.objects import part, parts
from infra.kube.say import shorten

STDIN, STDOUT, STDERR, ERROR = 0, 1, 2, 3  # channels of v4.channel.k8s.io
SILENCE_SECONDS = 60.0  # no byte for so long means that the connection is dead


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    exit_code: int
    stdout: str
    stderr: str


def execute(
    api: Api, pod_path: str, container: str, command: list[str], blocks: Iterable[bytes] = ()
) -> Ended:
    """Run a command; send it blocks of bytes. It must know by itself when it has all of them.

    Args:
        api: the cluster.
        pod_path: the pod's path.
        container: of the pod.
        command: program and arguments.
        blocks: bytes for standard input.

    Raises:
        UnreachableError: the connection was cut or refused; the command may have done a part.
    """
    query = [("container", container), *(("command", word) for word in command)]
    query += [(name, "true") for name in ("stdin", "stdout", "stderr")]
    try:
        stream = api.client.websocket(f"{pod_path}/exec", query)
    except (websocket.WebSocketException, OSError) as error:
        raise UnreachableError(shorten(str(error), 300)) from None
    received: dict[int, bytearray] = {}
    try:
        stream.settimeout(SILENCE_SECONDS)
        for block in blocks:
            stream.send_binary(bytes([STDIN]) + block)
        while ERROR not in received:
            data = stream.recv()
            frame = data.encode() if isinstance(data, str) else data
            if not frame:
                raise UnreachableError("the connection ended before the command did")
            received.setdefault(frame[0], bytearray()).extend(frame[1:])
            if frame[0] == ERROR and not frame[1:]:
                del received[ERROR]  # an empty first message
    except (websocket.WebSocketException, OSError) as error:
        raise UnreachableError(f"the connection was cut: {shorten(str(error), 300)}") from None
    finally:
        stream.close(timeout=1)
    text = {channel: bytes(data).decode(errors="replace") for channel, data in received.items()}
    return Ended(exit_code_of(json.loads(text[ERROR])), text.get(STDOUT, ""), text.get(STDERR, ""))


def exit_code_of(status: dict[str, Any]) -> int:
    """The exit code from the Status object on the error channel. Pure.

    Raises:
        UnreachableError: the command could not be started, or was lost.
    """
    if status.get("status") == "Success":
        return 0
    for cause in parts(part(status, "details"), "causes"):
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise UnreachableError(shorten(str(status.get("message") or status)))

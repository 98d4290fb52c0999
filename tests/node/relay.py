"""Passes connections between TCP and a Unix socket: a file is seen where a network is not.

`relay.py PORT SOCKET` listens on all addresses. Standard library only: it also runs on the test
host.
"""

import contextlib
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path


def to_tcp(file: Path, address: tuple[str, int]) -> socket.socket:
    """Pass each connection to the Unix socket `file` on to `address`; close what is returned."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(file))
    listener.listen(64)
    connect = lambda: socket.create_connection(address)  # noqa: E731
    threading.Thread(target=_serve, args=(listener, connect), daemon=True).start()
    return listener


def _serve(listener: socket.socket, connect: Callable[[], socket.socket]) -> None:
    while True:
        try:
            ours, _ = listener.accept()
        except OSError:  # closed
            return
        theirs = connect()
        for one, other in ((ours, theirs), (theirs, ours)):
            threading.Thread(target=_copy, args=(one, other), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while block := source.recv(65536):
            target.sendall(block)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def main(port: int, file: str) -> None:
    """From TCP to the Unix socket."""

    def connect() -> socket.socket:
        there = socket.socket(socket.AF_UNIX)
        there.connect(file)
        return there

    _serve(socket.create_server(("", port)), connect)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

"""Passes connections on, such as from a TCP port to a Unix socket.

A program in another network namespace can reach a Unix socket by its file. It runs as
`relay.py FROM TO`, where each is the path of a Unix socket or HOST:PORT. It uses only the standard
library, because it also runs on the test host.
"""

import contextlib
import socket
import sys
import threading


def listen(where: str) -> socket.socket:
    if where.startswith("/"):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(where)
        listener.listen(64)
        return listener
    return socket.create_server(tcp(where))


def connect(where: str) -> socket.socket:
    if where.startswith("/"):
        there = socket.socket(socket.AF_UNIX)
        there.connect(where)
        return there
    return socket.create_connection(tcp(where))


def tcp(where: str) -> tuple[str, int]:
    host, _, port = where.rpartition(":")
    return host, int(port)


def copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while block := source.recv(65536):
            target.sendall(block)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def main(come_from: str, go_to: str) -> None:
    listener = listen(come_from)
    while True:
        ours, _ = listener.accept()
        try:
            theirs = connect(go_to)
        except OSError:  # no program listens there at the moment
            ours.close()
            continue
        for one, other in ((ours, theirs), (theirs, ours)):
            threading.Thread(target=copy, args=(one, other), daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Lets programs of this machine reach a port of a pod, through the API server alone."""

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import websocket

from infra.kube.access import Access
from infra.kube.api import Api

DATA, ERROR = 0, 1  # channels of v4.channel.k8s.io, for the one port that is asked for
BLOCK_BYTES = 64 << 10
HERE = "127.0.0.1"  # nobody on the network gets in


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextmanager
def forwarded(access: Access, pod_path: str, pod_port: int, local_port: int) -> Iterator[int]:
    """Listen on this machine's loopback while the block runs; yields the port.

    Each connection gets a connection to the API server of its own. One that cannot be made is
    closed at once, as by a server that is away.

    Args:
        access: the cluster.
        pod_path: the pod's path.
        pod_port: a TCP port on which the pod listens.
        local_port: of this machine; 0: any that is free.

    Raises:
        OSError: the local port cannot be had.
    """

    class Connection(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError, ValueError, websocket.WebSocketException):
                _copy(self.request, access, f"{pod_path}/portforward", pod_port)

    with _Server((HERE, local_port), Connection) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def _copy(here: socket.socket, access: Access, path: str, pod_port: int) -> None:
    """Copy both ways until one side ends."""
    there = Api(access).websocket(path, [("ports", str(pod_port))])
    there.settimeout(None)

    def send() -> None:
        with suppress(OSError, websocket.WebSocketException):
            while block := here.recv(BLOCK_BYTES):
                there.send_binary(bytes([DATA]) + block)
        there.shutdown()  # HTTP's clients close when they have their answer

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    begun = set[int]()
    try:
        while frame := there.recv():
            data = frame.encode() if isinstance(frame, str) else frame
            channel, content = data[0], data[1:]
            if channel not in begun:  # the first frame of each channel repeats the port
                begun.add(channel)
                content = content[2:]
            if channel == ERROR and content:
                return
            if content:
                here.sendall(content)
    finally:
        with suppress(OSError):
            here.shutdown(socket.SHUT_RDWR)
        there.shutdown()
        thread.join(1)

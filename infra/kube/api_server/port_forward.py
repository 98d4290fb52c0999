"""Lets programs on this machine reach a port of a pod, through the API server."""

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import websocket

from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.api_server.channels import read_frame, send_frame, wait_readable
from infra.kube.errors import ApiError, UnreachableError

DATA, ERROR = 0, 1  # channels of v4.channel.k8s.io for the first (here the only) port
BLOCK_BYTES = 64 << 10
FRAME_SECONDS = 60.0  # the longest time for the rest of a message that has begun
LOOPBACK = "127.0.0.1"  # other machines on the network cannot connect to this address
REFUSALS = (ApiError, OSError, ValueError, UnreachableError, websocket.WebSocketException)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextmanager
def forwarded(access: Access, pod_path: str, pod_port: int, local_port: int) -> Iterator[int]:
    """Listen on this machine's loopback address while the block runs, and yield the port.

    Each incoming connection gets its own connection to the API server. If that cannot be made, the
    incoming connection is closed at once.

    Args:
        access: how the cluster is reached.
        pod_path: the path of the pod.
        pod_port: a TCP port on which the pod listens.
        local_port: the port on this machine; 0: any free port.

    Raises:
        OSError: the local port cannot be used.
    """

    class Connection(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(*REFUSALS):
                _copy(self.request, access, f"{pod_path}/portforward", pod_port)

    with _Server((LOOPBACK, local_port), Connection) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def check_right(api: Api, pod_path: str, pod_port: int) -> None:
    """Open a connection to the pod and close it, to find out whether that is allowed.

    `forwarded` cannot report it, because it only closes connections that cannot be made.

    Raises:
        ApiError: these credentials may not reach ports of the pod.
    """
    with suppress(OSError, websocket.WebSocketException):  # A later connection may succeed.
        api.websocket(f"{pod_path}/portforward", [("ports", str(pod_port))]).shutdown()


def _copy(here: socket.socket, access: Access, path: str, pod_port: int) -> None:
    """Copy bytes in both directions until one side ends the connection.

    HTTP clients close their connection when they have the answer.
    """
    there = Api(access).websocket(path, [("ports", str(pod_port))])
    there.settimeout(FRAME_SECONDS)
    begun = set[int]()
    try:
        while True:
            ready = wait_readable(there, here)
            if there in ready:
                channel, content = read_frame(there)
                if channel not in begun:  # The first frame of each channel begins with the port.
                    begun.add(channel)
                    content = content[2:]
                if channel == ERROR and content:
                    return
                here.sendall(content)
            if here in ready:
                block = here.recv(BLOCK_BYTES)
                if not block:
                    return
                send_frame(there, DATA, block)
    finally:
        there.shutdown()

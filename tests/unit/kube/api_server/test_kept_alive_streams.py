"""Connections that only wait for a pod's next line notice that the other side is gone.

The server is a real one on the loopback. That its silence ends a connection cannot be shown without
another machine, so the test looks at what the connection asks of the system.
"""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api

MOST_SECONDS = 60


class Lines(BaseHTTPRequestHandler):
    """Answers with the first line of a longer log, and keeps the connection open."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"step 1\n")

    def log_message(self, format: str, *args: object) -> None:
        pass


def kubeconfig(port: int) -> str:
    return json.dumps(
        {
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
            "current-context": "x",
        }
    )


def test_silent_log_connection_is_probed_soon() -> None:
    """A log may be silent for hours, so no time limit can end a connection that is dead, such as
    after the sleep of a laptop. The system asks the other side instead, and gives up in a minute.
    """
    with ThreadingHTTPServer(("127.0.0.1", 0), Lines) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        api = Api(Access(kubeconfig=kubeconfig(server.server_address[1])))
        response = api.stream("/log", {"follow": "true"})
        try:
            connection = cast(Any, response.connection).sock
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            first, next_one, count = (
                connection.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
                for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
            )
            assert first + next_one * count <= MOST_SECONDS
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        finally:
            response.close()
            server.shutdown()

"""A web server for tests, which listens on a free port of the loopback."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer


class LoopbackServer:
    """A server that runs in a thread of its own, from its creation until `close`."""

    def __init__(self, kind: type[HTTPServer], handler: type[BaseHTTPRequestHandler]) -> None:
        """Start the server. `kind` decides whether requests are answered one by one or in
        threads.
        """
        self._server = kind(("127.0.0.1", 0), handler)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(60)
        self._server.server_close()

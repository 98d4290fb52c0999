"""Runs inside the pod of `fetch`: an HTTP server of one folder's bytes, for the API server's proxy.

It is sent as text to `python3 -c`, so it uses the standard library alone and imports nothing of
this project. Its argument is the folder. It prints one line of JSON (port, token, its process) and
goes on in the background until the pod ends. It changes nothing:

    GET /NAME?offset=N&count=N    those bytes of a file below the folder
    GET /                         nothing, to see whether the way is open

Every request needs the token, which is made here, in the header of TOKEN_HEADER: other pods may
reach the port. Answers: 403 no token, or a name outside of the folder; 410 no such bytes any more.
"""

import hmac
import json
import os
import secrets
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN_HEADER = "X-Disttrain-Token"
SILENCE_SECONDS = 60.0


class Server(ThreadingHTTPServer):
    """Listens at a free port of all addresses, IPv6 too where there is any."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("", 0), Handler, bind_and_activate=False)
        self.socket.close()
        if socket.has_dualstack_ipv6():
            self.socket = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        else:
            self.socket = socket.create_server(("", 0))
        self.folder, self.token = folder.resolve(), secrets.token_hex(32)


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    timeout = SILENCE_SECONDS

    def do_GET(self) -> None:
        """Send the bytes that are asked for."""
        assert isinstance(self.server, Server)
        given = self.headers.get(TOKEN_HEADER, "")
        if not hmac.compare_digest(given.encode(), self.server.token.encode()):
            self.answer(403)
            return
        url = urlsplit(self.path)
        query = {name: int(values[0]) for name, values in parse_qs(url.query).items()}
        name = unquote(url.path).lstrip("/")
        path = (self.server.folder / name).resolve()
        if not name:
            self.answer(200)
        elif not path.is_relative_to(self.server.folder):
            self.answer(403)
        else:
            self.send_bytes(path, query["offset"], query["count"])

    def send_bytes(self, path: Path, offset: int, count: int) -> None:
        """A part of a file; a connection that ends early tells that the file became shorter."""
        try:
            file = path.open("rb")
        except FileNotFoundError:
            self.answer(410)
            return
        with file:
            if os.fstat(file.fileno()).st_size < offset + count:
                self.answer(410)
                return
            self.answer(200, count)
            # Not os.sendfile: a socket with a time limit does not wait for room by itself.
            if count and self.connection.sendfile(file, offset, count) < count:
                self.close_connection = True

    def answer(self, status: int, count: int = 0) -> None:
        """The head of an answer with so many bytes."""
        self.send_response(status)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(count))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """No line for each request."""


def main(folder: str) -> None:
    """Print where the server is, and serve in the background."""
    server = Server(Path(folder))
    if process := os.fork():
        port = server.socket.getsockname()[1]
        answer = {"port": port, "token": server.token, "process": process}
        print(json.dumps(answer), flush=True)
        os._exit(0)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])

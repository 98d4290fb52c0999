"""Runs inside the pod of `fetch`: an HTTP server for the files of one folder.

The API server's proxy to pods sends the requests. This program is sent as text to `python3 -c`, so
it uses only the standard library and imports nothing of this project. Its argument is the folder.
It prints one line of JSON (its port, its token and its process number), and runs in the background
until the pod ends. It changes nothing:

    GET /NAME?offset=N&count=N    answers with those bytes of a file in the folder
    GET /                         answers with no bytes, to test the connection

Every request needs the token in the header TOKEN_HEADER, because other pods may reach the port. The
program makes the token itself. It answers with 403 if the token is missing or the name is outside
of the folder, and with 410 if there are no such bytes any more.
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
    """Listens at a free port of all addresses, including IPv6 if the machine has it."""

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
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    timeout = SILENCE_SECONDS

    def do_GET(self) -> None:
        """Send the bytes that the request asks for."""
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
        """Send a part of a file.

        If the file becomes shorter meanwhile, the connection ends before all bytes are sent.
        """
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
            # os.sendfile cannot be used: on a socket with a timeout it fails instead of waiting
            # until the socket can take more bytes.
            if count and self.connection.sendfile(file, offset, count) < count:
                self.close_connection = True

    def answer(self, status: int, count: int = 0) -> None:
        """Send the status and the headers of an answer with `count` bytes."""
        self.send_response(status)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(count))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Write no line for each request."""


def main(folder: str) -> None:
    """Print the server's port, token and process number, and serve in the background."""
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

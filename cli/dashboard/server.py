"""The HTTP server of the page. It answers only on this machine and only to its own page.

No request changes anything. Other pages in the same browser can send requests to the server, but
learn nothing: they have another host in the header Host (a protection against DNS rebinding), and
cannot send the header that the page sends. The page treats the contents of logs and names as text
(page/dom.js), and the policy below forbids any script that is not a file of the page.
"""

import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from cli.dashboard.source import UnknownError
from infra.kube.api_server.port_forward import LOOPBACK

FOLDER = Path(__file__).parent / "page"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
PAGE_HEADER = "X-Disttrain-Page"
SILENCE_SECONDS = 30.0
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Answers(Protocol):
    """What answers the page's requests."""

    def see(self, part: str, run_id: str) -> dict[str, Any]:
        """Return a part of the page, as Source.see in cli/dashboard/source.py does."""
        ...


class Server(ThreadingHTTPServer):
    """Listens on the loopback interface.

    Args:
        port: the TCP port; 0 for any free port.
        answers: answers the page's requests.

    Raises:
        OSError: the server cannot listen at the port.
    """

    daemon_threads = True

    def __init__(self, port: int, answers: Answers) -> None:
        super().__init__((LOOPBACK, port), Handler)
        self.answers = answers
        self.files = {f"/{path.name}": path for path in FOLDER.iterdir() if path.suffix in TYPES}
        self.files["/"] = FOLDER / "index.html"
        self.hosts = {f"{name}:{self.port}" for name in (LOOPBACK, "localhost")}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print an error, except if the page was closed while its answer was being sent."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def port(self) -> int:
        """The port at which the server listens."""
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        """The address for a browser of this machine."""
        return f"http://{LOOPBACK}:{self.port}/"


class Handler(BaseHTTPRequestHandler):
    """Answers one request and closes the connection. It knows only GET and HEAD."""

    timeout = SILENCE_SECONDS

    def do_GET(self) -> None:
        """Send a file of the page, or a part of what the page shows."""
        assert isinstance(self.server, Server)
        if self.headers.get("Host", "").lower() not in self.server.hosts:
            self.answer_text(HTTPStatus.FORBIDDEN, f"Open {self.server.address} instead.")
            return
        url = urlsplit(self.path)
        if url.path.startswith("/api/"):
            self.answer_part(self.server.answers, url.path.removeprefix("/api/"), url.query)
        elif url.path in self.server.files:
            path = self.server.files[url.path]
            self.answer(HTTPStatus.OK, TYPES[path.suffix], path.read_bytes())
        else:
            self.answer_text(HTTPStatus.NOT_FOUND, "There is no such page.")

    do_HEAD = do_GET  # noqa: N815  (the name that http.server looks for)

    def answer_part(self, answers: Answers, part: str, query: str) -> None:
        """Send a part as JSON, if the request has the page's header."""
        if self.headers.get(PAGE_HEADER) != "1":
            self.answer_text(HTTPStatus.FORBIDDEN, f"Send the header {PAGE_HEADER}: 1.")
            return
        run_id = parse_qs(query).get("run", [""])[0]
        try:
            content = answers.see(unquote(part), run_id)
        except UnknownError as reason:
            self.answer_text(HTTPStatus.NOT_FOUND, str(reason))
            return
        self.answer(HTTPStatus.OK, "application/json", json.dumps(content).encode())

    def answer_text(self, status: HTTPStatus, text: str) -> None:
        """Send a sentence as plain text."""
        self.answer(status, "text/plain; charset=utf-8", f"{text}\n".encode())

    def answer(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        """Send the headers and the content of an answer."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what http.server itself refuses, such as POST, with plain text instead of HTML."""
        self.close_connection = True
        self.answer_text(HTTPStatus(code), message or HTTPStatus(code).phrase)

    def version_string(self) -> str:
        """Return the text of the header `Server`, which shows no versions."""
        return "disttrain"

    def log_message(self, format: str, *args: object) -> None:
        """Write no line for each request."""


@contextmanager
def serving(port: int, answers: Answers) -> Iterator[Server]:
    """Serve in the background while the block runs; it raises the errors of `Server`."""
    with Server(port, answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()

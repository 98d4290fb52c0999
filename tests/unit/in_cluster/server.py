"""A stand-in for the API server: it gives a few answers, and notes the changes that it gets."""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from infra.in_cluster.api import Api

Json = dict[str, Any]


class Server(http.server.ThreadingHTTPServer):
    """Accepts all changes except those in `refuses`, but does not carry them out.

    Args:
        objects: the objects that it has, by path.

    Attributes:
        queries: the query of each GET request.
        done: method, path and body of each change that was accepted.
        refuses: the status with which a change is refused, by the last word of its path.
        cuts_answers: whether each answer ends after its first byte.
    """

    def __init__(self, objects: Json) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects = objects
        self.queries: list[str] = []
        self.done: list[tuple[str, str, Json]] = []
        self.refuses: dict[str, int] = {}
        self.cuts_answers = False


class _Handler(http.server.BaseHTTPRequestHandler):
    @property
    def api_server(self) -> Server:
        assert isinstance(self.server, Server)
        return self.server

    def _answer(self, status: int, body: object) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text[:1] if self.api_server.cuts_answers else text)

    def do_GET(self) -> None:
        assert self.headers["Authorization"] == "Bearer token"
        path, _, query = self.path.partition("?")
        self.api_server.queries.append(query)
        found = self.api_server.objects.get(path)
        self._answer(200 if found else 404, found or {})

    def _act(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = self.api_server.refuses.get(self.path.rpartition("/")[2], 200)
        if status == 200:
            self.api_server.done.append((self.command, self.path, body))
        self._answer(status, {})

    do_PATCH = do_POST = do_DELETE = _act  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Let the server answer during the block."""
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def api_of(server: Server, account: Path) -> Api:
    """Return the API as a pod of the namespace `team` uses it; `account` is the folder for its
    token.
    """
    (account / "token").write_text("token\n")
    (account / "namespace").write_text("team")
    return Api(f"http://127.0.0.1:{server.server_address[1]}", account)

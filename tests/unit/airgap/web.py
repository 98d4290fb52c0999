"""A web server of files on the loopback, which can break answers off and give other statuses."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Web:
    """What the server serves, and which requests it got.

    Args:
        url: the server's address.
        files: the contents by path.
        cut: how many of the next answers for a path are broken off half-way.
        status: the statuses of the next answers for a path.
        requests: the paths of all requests so far.
    """

    url: str
    files: dict[str, bytes] = field(default_factory=lambda: {})
    cut: dict[str, int] = field(default_factory=lambda: {})
    status: dict[str, list[int]] = field(default_factory=lambda: {})
    requests: list[str] = field(default_factory=lambda: [])


@contextmanager
def serving() -> Iterator[Web]:
    """Yield a server that answers during the block."""
    web = Web("")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            web.requests.append(self.path)
            content = web.files.get(self.path)
            status = 404 if content is None else 200
            if web.status.get(self.path):
                status = web.status[self.path].pop(0)
            content = content or b""
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if web.cut.get(self.path, 0):
                web.cut[self.path] -= 1
                content = content[: len(content) // 2]
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

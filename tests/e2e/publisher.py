"""A stand-in for the host from which controllers' manifests are downloaded, behind a proxy.

The files are those of the projects' Go modules. The proxy answers in place of the host, with a
certificate of an authority that this machine does not trust.
"""

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from infra.command_line import cache_folder
from sandbox.cluster import Cluster
from sandbox.pki import Certificate, make_pki
from sandbox.stack import Stack
from tests.kube.published import pinned_files, published_file

HOST = "raw.githubusercontent.com"


class Publisher:
    """Publishes the files of these controllers, and notes the paths of all requests."""

    def __init__(self, folder: Path, *names: str) -> None:
        self._folder = folder
        pki = folder / "publisher" / "pki"
        names_of_host = (f"DNS:{HOST}",)
        make_pki(pki, [Certificate("host", HOST, "serverAuth", alternative_names=names_of_host)])
        self.authority = (pki / "ca.crt").read_text()
        files = {file: published_file(name, file) for name in names for file in pinned_files(name)}
        self._files = {urlsplit(file.address).path: path for file, path in files.items()}
        self.kept = [cache_folder() / "manifests" / file.sha256 for file in files]
        self.requests: list[str] = []
        self._changed: dict[str, bytes] = {}
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pki / "host.crt", pki / "host.key")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, context))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def proxy(self) -> str:
        """The proxy's address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "Publisher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def lead(self, stack: Stack, cluster: Cluster) -> None:
        """Let the stack's `pulumi` use this proxy, and empty its cache of controllers' manifests.

        The usual environment variables lead to the proxy.
        """
        before = stack.environment.get("SSL_CERT_FILE", "")
        trusted = Path(before).read_text() if before else ""
        authorities = self._folder / "trusted.crt"
        authorities.write_text(f"{trusted}{self.authority}")
        stack.environment |= {
            "HTTPS_PROXY": self.proxy,
            "NO_PROXY": f"127.0.0.1,{cluster.node_ip}",
            "SSL_CERT_FILE": str(authorities),
        }
        for path in self.kept:
            path.unlink(missing_ok=True)

    def change_last(self) -> tuple[str, str]:
        """Publish another content of the last file, and remove the right content from the cache.

        It returns the path in the file's address, and the checksum that the file should have.
        """
        path, file = list(self._files.items())[-1]
        self._changed[path] = file.read_bytes() + b"# one line more\n"
        self.kept[-1].unlink(missing_ok=True)
        return path, self.kept[-1].name

    def change_back(self) -> None:
        """Publish the right content again."""
        self._changed.clear()

    def file(self, path: str) -> bytes | None:
        """Note the request, and return the content of the file at this path, or None."""
        self.requests.append(path)
        if path in self._changed:
            return self._changed[path]
        return self._files[path].read_bytes() if path in self._files else None


def _handler(publisher: Publisher, context: ssl.SSLContext) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            if self.path != f"{HOST}:443":
                self.send_error(403)
                return
            self.send_response(200)
            self.end_headers()
            plain = self.rfile, self.wfile
            with (
                context.wrap_socket(self.connection, server_side=True) as secured,
                secured.makefile("rb") as reader,
                secured.makefile("wb") as writer,
            ):
                self.rfile, self.wfile = reader, writer
                self.handle_one_request()
            self.rfile, self.wfile = plain
            self.close_connection = True

        def do_GET(self) -> None:
            content = publisher.file(self.path)
            self.send_response(200 if content is not None else 404)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler

"""A real image registry (distribution) on the loopback, and a project whose image is pushed to it.

`TokenFront` is a stand-in of the service that gives tokens at registries such as GitHub's. The
registry behind it is real.
"""

import http.client
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from infra.image.dependencies import Sources, layout_folder
from infra.image.oci import Image
from infra.image.plan import ImagePlan, plan_image
from infra.image.platforms import this_machine
from infra.image.registry.connection import Access
from infra.image.registry.login import Login
from infra.image.registry.push import Pushed, push
from infra.image.registry.repository import Repository
from sandbox.pki import Certificate, make_pki
from sandbox.toolchain import tool_folder
from sandbox.tools.services import IMAGE_REGISTRY
from tests.ports import free_port
from tests.unit.image.layouts import tiny_image, write_layout

PROJECT = Path(__file__).parents[2]
LOGIN = Login("tests", "a-password-of-the-tests")
# The bcrypt hash of the password above; the registry reads no other kind of hash.
HTPASSWD = "tests:$2b$04$QQL3.xEn28K8eRbSLE0ueOgDXMHBYNmz6tdwltzcIp.wBU5RZ3Ccu\n"
DEPS_BYTES = 3_000_000
SECONDS = 60


class Server:
    """A running registry. Its blobs are files below `storage`."""

    def __init__(
        self, folder: Path, *, login: bool = False, tls: bool = False, host: str = "127.0.0.1"
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.storage = folder / "storage"
        self.address = (host, free_port(host))
        http_part = f'  addr: "{self.name}"\n  secret: "of the tests"\n'
        if tls:
            names = (f"IP:{host}",)
            certificate = Certificate("server", "registry", "serverAuth", alternative_names=names)
            make_pki(folder / "a" / "pki", [certificate])
            self.authority = (folder / "a" / "pki" / "ca.crt").read_text()
            pki = folder / "a" / "pki"
            http_part += f"  tls:\n    certificate: {pki}/server.crt\n    key: {pki}/server.key\n"
        (folder / "htpasswd").write_text(HTPASSWD)
        auth = f"auth:\n  htpasswd:\n    realm: tests\n    path: {folder}/htpasswd\n"
        (folder / "config.yml").write_text(
            "version: 0.1\nlog:\n  level: info\nstorage:\n"
            f"  filesystem:\n    rootdirectory: {self.storage}\n  delete:\n    enabled: true\n"
            f"http:\n{http_part}{auth if login else ''}"
        )
        self._log = folder / "log"
        self._log.touch()
        self.start()

    def start(self) -> None:
        """Start the registry; after `close`, it starts with the same address and blobs."""
        with self._log.open("a") as log:
            program = str(tool_folder(IMAGE_REGISTRY) / "registry")
            self._process = subprocess.Popen(
                [program, "serve", str(self._log.parent / "config.yml")], stdout=log, stderr=log
            )
        wait_for_server(self.address, self._process, self._log)

    def tags(self, repository: str) -> Path:
        """Return the folder whose folders are a repository's tags; `repository` has no host."""
        repositories = self.storage / "docker" / "registry" / "v2" / "repositories"
        return repositories / repository / "_manifests" / "tags"

    @property
    def name(self) -> str:
        """Host and port, with which the names of repositories begin."""
        return f"{self.address[0]}:{self.address[1]}"

    def log(self) -> str:
        """Return the text of the registry's log."""
        return self._log.read_text()

    def close(self) -> None:
        """End the registry."""
        self._process.terminate()
        self._process.wait(SECONDS)


def wait_for_server(address: tuple[str, int], process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server answers. The test fails with its log if it ends or is too late."""
    deadline = time.monotonic() + SECONDS
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        try:
            with socket.create_connection(address, timeout=5):
                return
        except OSError:
            time.sleep(0.05)


@contextmanager
def running(
    folder: Path, *, login: bool = False, tls: bool = False, host: str = "127.0.0.1"
) -> Iterator[Server]:
    """Yield a registry, which ends after the block."""
    server = Server(folder, login=login, tls=tls, host=host)
    try:
        yield server
    finally:
        server.close()


@dataclass
class Project:
    """A checkout, and a cache with built dependencies of a few megabytes."""

    folder: Path
    cache: Path
    deps: Image
    said: list[str] = field(default_factory=list[str])

    def plan(self, repository: str) -> ImagePlan:
        """Return the plan of the image for a repository."""
        return plan_image(self.folder, repository, "scratch", None)

    @property
    def sources(self) -> Sources:
        return Sources(self.folder, self.cache, "auto")

    def push(self, access: Access, request: str = "", *, compress: bool = True) -> Pushed:
        """Push the image, and return what was pushed. The messages are added to `said`."""
        return push(
            self.plan(access.repository),
            Repository(access),
            self.sources,
            self.said.append,
            request=request,
            compress=compress,
        )


def make_project(folder: Path, deps_bytes: int = DEPS_BYTES) -> Project:
    """Make a project like this one, but with small dependencies."""
    (folder / "docker").mkdir(parents=True)
    shutil.copy(PROJECT / "docker" / "Dockerfile", folder / "docker")
    (folder / "trainer").mkdir()
    (folder / "trainer" / "requirements.txt").write_text("torch\n")
    (folder / "trainer" / "__main__.py").write_text("print('one')\n")
    block = bytes(range(256)) * 64
    deps = tiny_image(block * (deps_bytes // len(block)))
    cache = folder / "cache"
    plan = plan_image(folder, "localhost/a/b", "scratch", None)
    write_layout(layout_folder(plan, cache, this_machine()), deps)
    return Project(folder, cache, deps)


class TokenFront:
    """A server before the registry that demands a token, which it gives itself.

    Each token is valid for `lasts` requests.
    """

    def __init__(self, server: Server, lasts: int) -> None:
        front = self
        self.given = 0
        self.left = 0

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                if self.path.startswith("/token"):
                    front.give(self)
                    return
                wanted = f"Bearer token-{front.given}"
                if self.headers.get("Authorization") != wanted or front.left <= 0:
                    realm = f"http://{front.name}/token"
                    challenge = f'Bearer realm="{realm}",service="tests",scope="x"'
                    self.answer(401, b"", {"WWW-Authenticate": challenge})
                    return
                front.left -= 1
                upstream = http.client.HTTPConnection(*server.address, timeout=SECONDS)
                skipped = ("authorization", "connection")
                passed = {k: v for k, v in self.headers.items() if k.lower() not in skipped}
                upstream.request(self.command, self.path, body, passed)
                back = upstream.getresponse()
                content = back.read()
                hop = ("content-length", "transfer-encoding", "connection")
                self.answer(
                    back.status,
                    content,
                    {k: v for k, v in back.getheaders() if k.lower() not in hop},
                )
                upstream.close()

            def answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                del format, args

        for method in ("GET", "HEAD", "POST", "PUT", "PATCH"):
            setattr(Handler, f"do_{method}", Handler.pass_on)
        self._lasts = lasts
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.name = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def give(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer a request for a token."""
        answer = getattr(handler, "answer")  # noqa: B009 - a method of the class above
        if handler.headers.get("Authorization") != f"Basic {LOGIN.encoded}":
            answer(401, b'{"errors": [{"code": "UNAUTHORIZED", "message": "who are you"}]}', {})
            return
        self.given += 1
        self.left = self._lasts
        answer(200, json.dumps({"token": f"token-{self.given}"}).encode(), {})

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(SECONDS)

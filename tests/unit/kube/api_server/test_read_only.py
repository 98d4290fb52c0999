"""The look at a cluster before anything is made: each thing is read once."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from infra.kube.api_server.access import Access
from infra.kube.api_server.dry_run import checked
from infra.kube.api_server.findings import objects_at
from infra.kube.api_server.read_only import read_only_api
from infra.kube.errors import UnreachableError
from tests.tls_api import kubeconfig_of, tls_api

asked = list[str]()
FORBIDDEN_BODY = b'{"kind": "Status", "message": "may not list secrets"}'


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, b'{"kind": "Pod"}')

    def do_GET(self) -> None:
        if self.path == "/secrets":
            self.answer(403, FORBIDDEN_BODY)
        elif self.path == "/down" and asked.count("GET /down") == 0:
            self.answer(503, b'{"kind": "Status", "message": "starting"}')
        else:
            self.answer(200, b'{"items": [{"metadata": {"name": "n"}}]}')

    def answer(self, status: int, content: bytes) -> None:
        asked.append(f"{self.command} {self.path}")
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


@pytest.fixture
def access(tmp_path: Path) -> Iterator[Access]:
    """Yield the way to a server that notes in `asked` what it was asked."""
    asked.clear()
    with tls_api(tmp_path, Handler) as gate:
        yield Access(kubeconfig=json.dumps(kubeconfig_of(gate, tmp_path)))


def test_one_look_reads_each_thing_once(access: Access) -> None:
    """Several checks of a preview read the same lists, such as that of all nodes, which has many
    megabytes on a large cluster. One look asks for each once, and the next look asks again.
    """
    for _ in range(2):
        with read_only_api(access, 5.0) as api:
            first = api.list("/nodes")
            first[0]["metadata"]["name"] = "changed by a caller"
            assert api.list("/nodes") == [{"metadata": {"name": "n"}}]
            assert [objects_at(api, "/secrets") for _ in range(2)] == [None, None]
            assert api.list("/nodes", "a=b")
    assert asked == ["GET /nodes", "GET /secrets", "GET /nodes?labelSelector=a%3Db"] * 2


def test_trials_are_made_each_time(access: Access) -> None:
    """The API server is asked about each object that it would accept or refuse."""
    with read_only_api(access, 5.0) as api:
        for _ in range(2):
            checked(api, "/pods", {"kind": "Pod"})
    assert asked == ["POST /pods?dryRun=All"] * 2


def test_starting_server_is_asked_again(access: Access) -> None:
    """A server that could not answer is asked again."""
    with read_only_api(access, 5.0) as api:
        with pytest.raises(UnreachableError):
            api.list("/down")
        assert api.list("/down")

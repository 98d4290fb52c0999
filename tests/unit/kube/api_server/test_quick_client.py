"""Requests of the quick client, against a TLS server that answers with what it was asked."""

import base64
import json
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.api_server.quick_client import QuickClient
from infra.kube.errors import UnreachableError
from tests.gate import Gate
from tests.tls_api import NAME, kubeconfig_of, tls_api


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PATCH(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        asked = {"path": self.path, "kind": self.headers["Content-Type"], "body": json.loads(body)}
        self.answer(json.dumps(asked).encode())

    def do_GET(self) -> None:
        self.answer(b'{"items": []}' if self.path != "/log" else b"\xff is no text")

    def answer(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """Yield the gate before the server. The gate can close and can cut connections."""
    with tls_api(tmp_path, Handler) as gate:
        yield gate


def access(gate: Gate, tmp_path: Path, name: str = NAME) -> Access:
    """Return a kubeconfig for the server, which is expected to have this name in its
    certificate.
    """
    return Access(kubeconfig=json.dumps(kubeconfig_of(gate, tmp_path, name)))


def test_connection_that_the_server_has_closed_is_made_anew(
    gate: Gate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An idle connection that the server has closed is replaced without a message and without a
    wait.
    """
    api = Api(access(gate, tmp_path), patience_seconds=0)
    assert api.list("/pods") == []
    gate.cut()
    assert api.patch("/pods/a", {"spec": 1}) == {
        "path": "/pods/a",
        "kind": "application/merge-patch+json",
        "body": {"spec": 1},
    }
    assert api.text("/log", {}) == "\ufffd is no text"
    assert capsys.readouterr().err == ""


def test_server_that_was_away_is_asked_again(gate: Gate, tmp_path: Path) -> None:
    api = Api(access(gate, tmp_path), patience_seconds=0)
    gate.close()
    with pytest.raises(UnreachableError, match="Connection refused"):
        api.list("/pods")
    gate.open()
    assert api.list("/pods") == []


def test_server_with_the_certificate_of_another_name_is_not_asked(
    gate: Gate, tmp_path: Path
) -> None:
    with pytest.raises(UnreachableError, match="certificate"):
        Api(access(gate, tmp_path, "other.test"), patience_seconds=0).list("/pods")


@pytest.mark.parametrize("coding", ["utf-8", "latin-1"])
def test_authority_may_have_any_comment(gate: Gate, tmp_path: Path, coding: str) -> None:
    """Comments in a certificate authority may have any letters. Python's ssl accepts only ASCII
    text, so each command would otherwise end with a TypeError.
    """
    content = kubeconfig_of(gate, tmp_path)
    cluster = content["clusters"][0]["cluster"]
    authority = base64.b64decode(cluster["certificate-authority-data"])
    noted = "# Autorité de l'entreprise\n".encode(coding) + authority
    cluster["certificate-authority-data"] = base64.b64encode(noted).decode()
    client = QuickClient(Access(kubeconfig=json.dumps(content)), 5)
    with closing(client):
        assert client.request("GET", "/pods", {}, None, "application/json").status == 200


@pytest.mark.parametrize(
    "server", ["https://a..b:6443", f"https://{'ü' * 70}.test:6443"], ids=["empty", "long"]
)
def test_server_with_impossible_name_is_unreachable(
    gate: Gate, tmp_path: Path, server: str
) -> None:
    """A server whose name cannot be a DNS name counts as one that does not answer. Otherwise each
    command would end with a traceback.
    """
    content = kubeconfig_of(gate, tmp_path)
    content["clusters"][0]["cluster"]["server"] = server
    api = Api(Access(kubeconfig=json.dumps(content)), patience_seconds=0)
    with pytest.raises(UnreachableError, match="label"):
        api.list("/pods")

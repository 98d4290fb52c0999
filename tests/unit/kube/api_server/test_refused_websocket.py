"""What is said if the API server refuses `exec`.

The server speaks TLS and refuses every websocket, as a real one does if a right is missing.
"""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.api_server.exec_stream import execute
from infra.kube.errors import ApiError, UnreachableError
from tests.tls_api import kubeconfig_of, tls_api

FORBIDDEN = 'pods "a" is forbidden: User "ann" cannot create resource "pods/exec"'


class Refuses(BaseHTTPRequestHandler):
    """Says that the pod `a` is forbidden and that `b` does not exist. For `c`, it answers as a
    proxy does.
    """

    def do_GET(self) -> None:
        status, message = (404, 'pods "b" not found') if "/b/" in self.path else (403, FORBIDDEN)
        body = json.dumps({"kind": "Status", "message": message, "code": status}).encode()
        content = b"<html>" if "/c/" in self.path else body
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """Yield an API client of the server."""
    with tls_api(tmp_path, Refuses) as gate:
        yield Api(Access(json.dumps(kubeconfig_of(gate, tmp_path))))


def test_missing_right_to_exec_is_said_in_the_words_of_the_server(api: Api) -> None:
    """A missing right to `exec` is an error at once, with the server's own message. Otherwise the
    command would be tried again many times, and the reason would be lost behind HTTP headers.
    """
    with pytest.raises(ApiError) as refused:
        execute(api, "/api/v1/namespaces/n/pods/a", "task", ["true"])
    assert (refused.value.status, str(refused.value)) == (403, FORBIDDEN)


def test_pod_that_is_gone_may_come_again(api: Api) -> None:
    """A pod that does not exist counts as one that does not answer, because it may come again."""
    with pytest.raises(UnreachableError, match=r'^404 pods "b" not found$'):
        execute(api, "/api/v1/namespaces/n/pods/b", "task", ["true"])


def test_refusal_by_a_proxy_may_end(api: Api) -> None:
    """A refusal that comes from a proxy, and not from the API server, counts as a server that does
    not answer. Such a refusal may end, so a task can try again.
    """
    with pytest.raises(UnreachableError, match=r"^403 Forbidden$"):
        execute(api, "/api/v1/namespaces/n/pods/c", "task", ["true"])

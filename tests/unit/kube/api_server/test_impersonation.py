"""A kubeconfig whose user impersonates another one (`as`, `as-groups`)."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, KubeconfigError

REFUSAL = "deployer may not exec"
AS: dict[str, Any] = {
    "as": "deployer",
    "as-uid": "7",
    "as-groups": ["team-a", "system:authenticated"],
    "as-user-extra": {"example.org/Scope": ["view", "edit"]},
}


class Server(HTTPServer):
    """A stand-in for an API server that records as whom each request was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[list[tuple[str, str]]] = []


class Handler(BaseHTTPRequestHandler):
    """Answers each request with an empty list, and refuses websockets."""

    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        self.server.asked.append(
            sorted(
                (name.lower(), value)
                for name, value in self.headers.items()
                if name.lower().startswith(("impersonate-", "authorization"))
            )
        )
        upgrades = "Upgrade" in self.headers
        body = json.dumps({"items": [], "message": REFUSAL}).encode()
        self.send_response(403 if upgrades else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    """Yield the server, which runs in a thread."""
    made = Server()
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def api(port: int, user: dict[str, Any]) -> Api:
    """Return an API client for the server at this port, with these fields of the user."""
    content = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [
            {"name": "other", "user": {"as": "nobody"}},
            {"name": "u", "user": {"token": "t", **user}},
        ],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    return Api(Access(kubeconfig=json.dumps(content)), patience_seconds=0)


def test_every_request_asks_as_that_user(server: Server) -> None:
    """Each request has the headers of the impersonated user, as with kubectl and Pulumi. Otherwise
    rights would be checked, and objects made, as the real user.
    """
    asks = api(server.server_port, AS)
    assert asks.list("/pods") == []
    asks.stream("/pods", {}).read()
    with pytest.raises(ApiError, match=f"^{REFUSAL}$") as refused:
        asks.websocket("/pods/a/exec", [])
    assert refused.value.status == 403
    expected = [
        ("authorization", "Bearer t"),
        ("impersonate-extra-example.org%2fscope", "edit"),
        ("impersonate-extra-example.org%2fscope", "view"),
        ("impersonate-group", "system:authenticated"),
        ("impersonate-group", "team-a"),
        ("impersonate-uid", "7"),
        ("impersonate-user", "deployer"),
    ]
    assert server.asked == [expected] * 3


def test_user_without_it_asks_as_himself(server: Server) -> None:
    assert api(server.server_port, {}).list("/pods") == []
    assert server.asked == [[("authorization", "Bearer t")]]


def test_groups_without_user_are_refused() -> None:
    """A kubeconfig with `as-groups` but without `as` is refused, as by kubectl. Otherwise the
    requests would be sent as the real user.
    """
    with pytest.raises(KubeconfigError, match=r"has as-groups without `as`.*Add `as`"):
        api(1, {"as-groups": ["admins"]}).list("/pods")

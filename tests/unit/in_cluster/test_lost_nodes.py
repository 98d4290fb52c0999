"""Which pods are given up, and how: only living ones, on machines that stay silent."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.in_cluster.api import Api
from infra.in_cluster.lasting import Lasting
from infra.in_cluster.lost_nodes import Pod, is_silent, living, look

UID = "1-2-3"


def pod(name: str, node: str, phase: str = "Running") -> dict[str, Any]:
    spec = {"nodeName": node} if node else {}
    return {"metadata": {"name": name, "uid": UID}, "spec": spec, "status": {"phase": phase}}


def node(ready: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": "Ready", "status": ready}]}}


def test_machine_is_lost_after_silence_without_a_break() -> None:
    silence = Lasting(patience_seconds=10)
    assert silence.lasting(["a", "b"], 100) == set()
    assert silence.lasting(["a"], 109) == set()
    assert silence.lasting(["a", "b"], 110) == {"a"}  # b has answered in between
    assert silence.lasting(["a", "b"], 120) == {"a", "b"}
    assert silence.lasting([], 130) == set()


def test_pods_without_a_machine_or_with_an_end_are_left() -> None:
    pods = [pod("a", "n1"), pod("b", ""), pod("c", "n1", "Succeeded"), pod("d", "n2", "Failed")]
    assert living(pods) == [Pod("a", UID, "n1")]


def test_only_a_kubelet_that_is_missed_is_silent() -> None:
    """One that says that its node is not ready still ends pods by itself."""
    assert is_silent(node("Unknown"))
    assert not is_silent(node("False"))
    assert not is_silent(node("True"))
    assert not is_silent({})


class Server(http.server.ThreadingHTTPServer):
    """An API server of three answers; it notes what it was told to do."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.pods = [pod("on-lost", "lost"), pod("on-well", "well"), pod("gone", "without")]
        self.done: list[tuple[str, str, dict[str, Any]]] = []
        self.refusal = 0


class Handler(http.server.BaseHTTPRequestHandler):
    @property
    def api_server(self) -> Server:
        assert isinstance(self.server, Server)
        return self.server

    def _answer(self, status: int, body: object) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        assert self.headers["Authorization"] == "Bearer token"
        path, _, query = self.path.partition("?")
        if path == "/api/v1/namespaces/team/pods":
            assert "labelSelector=app.kubernetes.io%2Fname%3Ddisttrain&" in query
            self._answer(200, {"items": self.api_server.pods})
        elif path.endswith("/nodes/without"):
            self._answer(404, {})
        else:
            self._answer(200, node("Unknown" if path.endswith("/lost") else "True"))

    def _act(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.api_server.done.append((self.command, self.path, body))
        self._answer(self.api_server.refusal or 200, {})

    do_PATCH = do_DELETE = _act  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def api(server: Server, tmp_path: Path) -> Api:
    (tmp_path / "token").write_text("token\n")
    (tmp_path / "namespace").write_text("team")
    return Api(f"http://127.0.0.1:{server.server_address[1]}", tmp_path)


def test_pod_on_a_lost_machine_is_failed_and_then_deleted(
    server: Server, api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    """As what Kubernetes itself does for a machine that is surely off, and to no other pod."""
    look(api, Lasting(patience_seconds=0))
    patch, delete = server.done
    place = "/api/v1/namespaces/team/pods/on-lost"
    assert (patch[:2], delete[:2]) == (("PATCH", f"{place}/status"), ("DELETE", place))
    assert patch[2]["metadata"] == {"uid": UID}
    assert patch[2]["status"]["phase"] == "Failed"
    assert patch[2]["status"]["conditions"][0]["type"] == "DisruptionTarget"
    assert delete[2] == {"gracePeriodSeconds": 0, "preconditions": {"uid": UID}}
    said = capsys.readouterr().out
    assert said == "lost does not answer: gave up pod on-lost, so that another one can start\n"


def test_machine_that_may_come_back_keeps_its_pods(server: Server, api: Api) -> None:
    silence = Lasting(patience_seconds=3600)
    look(api, silence)
    look(api, silence)
    assert server.done == []


@pytest.mark.parametrize(("status", "is_trouble"), [(404, False), (409, False), (403, True)])
def test_refusal_counts_unless_another_was_quicker(
    server: Server, api: Api, status: int, is_trouble: bool
) -> None:
    """A pod that is gone needs nothing; a right that is missing is to be said."""
    server.refusal = status
    if is_trouble:
        with pytest.raises(OSError, match="403"):
            look(api, Lasting(patience_seconds=0))
    else:
        look(api, Lasting(patience_seconds=0))

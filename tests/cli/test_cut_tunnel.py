"""Commands go on after the tunnel to the API server is cut, because the kubeconfig's plugin opens a
new one.

The tunnel is a stand-in: a gate that only the plugin opens. The API server, which speaks TLS, is a
stand-in too. The commands and their connections are real.
"""

from __future__ import annotations

import io
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from cli.logs.pod_logs import PodLogs
from cli.pod_answer import ask_by_pod
from cli.sample import sample
from cli.stack_outputs import RunPlace
from cli.stack_pod import stack_pod
from cli.stop import LastLines
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.errors import UnreachableError
from tests.cli.records import RECORD
from tests.cli.status.trainer_lines import START, STEPS
from tests.gate import Gate
from tests.tls_api import kubeconfig_of, tls_api

LIMIT_SECONDS = 120
PODS = f"/api/v1/namespaces/{RECORD.namespace}/pods"
# The plugin asks the test to open the tunnel, and waits until the tunnel is open.
PLUGIN = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as asked:
    asked.recv(1)
print(sys.argv[2])
"""


class Tunnel:
    """The stand-in tunnel: the gate before the API server, and the port where the plugin asks for
    it to be opened.

    `opened` counts how often the plugin has opened it.
    """

    def __init__(self, gate: Gate) -> None:
        self.gate, self.opened = gate, 0
        gate.close()
        self._is_open = False
        self._asked = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._asked.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def cut(self) -> None:
        """Close the tunnel as a network that was away for a while would: ssh has ended, nobody
        listens.
        """
        self._is_open = False
        self.gate.close()

    def close(self) -> None:
        self._asked.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._asked.accept()
                with connection:
                    if not self._is_open:
                        self.gate.open()
                        self._is_open, self.opened = True, self.opened + 1
                    connection.sendall(b".")


class Pod:
    """One pod, whose log the API server hands out in parts.

    `parts` together are the whole log. In the first request for the log, `before_the_rest` is
    called before each part but the first.
    """

    def __init__(self, *parts: str) -> None:
        self.parts, self.requests, self.has_ended = parts, 0, False
        self.before_the_rest: Callable[[], None] = lambda: None

    def manifest(self) -> dict[str, Any]:
        status: dict[str, Any] = {"phase": "Running"}
        if self.has_ended:
            ended = {"state": {"terminated": {"exitCode": 0}}}
            status = {"phase": "Succeeded", "containerStatuses": [ended]}
        spec = {"containers": [{"name": "trainer"}]}
        return {"metadata": {"name": "pod-a", "uid": "1"}, "spec": spec, "status": status}


class ApiServer(BaseHTTPRequestHandler):
    """A stand-in API server that knows the one pod `pod`."""

    protocol_version = "HTTP/1.1"
    pod: Pod

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer({})

    def do_DELETE(self) -> None:
        self.do_POST()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.endswith("/log"):
            self._log()
        else:
            item = self.pod.manifest()
            self._answer({"items": [item]} if path.endswith("/pods") else item)

    def _log(self) -> None:
        self.pod.requests += 1
        is_first = self.pod.requests == 1
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with suppress(OSError):  # the tunnel is cut
            for number, text in enumerate(self.pod.parts):
                if number and is_first:
                    self.pod.before_the_rest()
                block = text.encode()
                self.wfile.write(f"{len(block):x}\r\n".encode() + block + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
            self.pod.has_ended = self.pod.has_ended or not is_first

    def _answer(self, content: dict[str, Any]) -> None:
        text = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Keep the requests out of the tests' output."""


@pytest.fixture
def tunnel(tmp_path: Path) -> Iterator[Tunnel]:
    """Yield a tunnel that is closed, with the stand-in API server behind it."""
    with tls_api(tmp_path, ApiServer) as gate:
        made = Tunnel(gate)
        yield made
        made.close()


@pytest.fixture
def access(tunnel: Tunnel, tmp_path: Path) -> Access:
    """Return an access whose plugin opens the tunnel, as the plugin of infra/node/tunnel.py
    does.
    """
    content = kubeconfig_of(tunnel.gate, tmp_path)
    (tmp_path / "plugin.py").write_text(PLUGIN)
    pki = {
        "clientCertificateData": (tmp_path / "pki" / "admin.crt").read_text(),
        "clientKeyData": (tmp_path / "pki" / "admin.key").read_text(),
    }
    version = "client.authentication.k8s.io/v1"
    answer = {"apiVersion": version, "kind": "ExecCredential", "status": pki}
    words = [str(tmp_path / "plugin.py"), str(tunnel.port), json.dumps(answer)]
    content["users"][0]["user"] = {
        "exec": {
            "apiVersion": version,
            "command": sys.executable,
            "args": ["-S", *words],
            "interactiveMode": "Never",
        }
    }
    return Access(kubeconfig=json.dumps(content))


def place_at(access: Access) -> RunPlace:
    return RunPlace(
        access, RECORD.namespace, RECORD.owner, "image", "/data/runs/a", "Job a", "claim"
    )


def pod_of(monkeypatch: pytest.MonkeyPatch, *parts: str) -> Pod:
    """Give the API server a pod whose log has these parts, and return the pod."""
    pod = Pod(*parts)
    monkeypatch.setattr(ApiServer, "pod", pod, raising=False)
    return pod


class Screen(io.BytesIO):
    """A standard output whose event `has_text` is set as soon as something is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.has_text = threading.Event()

    @property
    def buffer(self) -> Screen:
        return self

    def write(self, content: Any, /) -> int:
        self.has_text.set()
        return super().write(content)


def test_text_of_sample_goes_on_after_cut(
    tunnel: Tunnel, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sample` shows the pod's whole text although the tunnel was cut in the middle. What was shown
    before the cut is not shown again.
    """
    pod, screen = pod_of(monkeypatch, "To be, or ", "not to be\n"), Screen()
    monkeypatch.setattr(sys, "stdout", screen)

    def cut() -> None:
        assert screen.has_text.wait(LIMIT_SECONDS)
        tunnel.cut()

    pod.before_the_rest = cut
    assert sample(Api(access), place_at(access), "/data/runs/first", []) == 0
    assert screen.getvalue() == b"To be, or not to be\n"
    assert (tunnel.opened, pod.requests) == (2, 2)


def test_cut_that_lasts_ends_sample_with_a_sentence(
    tunnel: Tunnel, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the tunnel stays cut for AWAY_SECONDS, `sample` ends with an error that names the pod's
    log. Otherwise it would wait for ever.
    """
    monkeypatch.setattr("cli.followed_log.AWAY_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stdout", Screen())
    pod = pod_of(monkeypatch, "To be, or ", "not to be\n")
    pod.before_the_rest = tunnel.cut
    with pytest.raises(UnreachableError, match="the pod's log is cut off: "):
        sample(Api(access), place_at(access), "/data/runs/first", [])


def test_answer_of_pod_is_whole_after_cut(
    tunnel: Tunnel, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that starts a pod and reads one JSON object from its log gets the whole object
    after a cut. The look at a node is such a command.
    """
    pod = pod_of(monkeypatch, 'some words\n{"read', 'able": true}\n')
    pod.before_the_rest = tunnel.cut
    made = stack_pod(place_at(access), "look", deadline_seconds=60)
    assert ask_by_pod(Api(access), made, failed="no answer") == ({"readable": True}, "")
    assert (tunnel.opened, pod.requests) == (2, 2)


def test_stop_sees_the_last_save_after_cut(
    tunnel: Tunnel, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`stop` sees a checkpoint that was saved after the cut. Otherwise it would say that the run
    has to repeat the steps of this checkpoint.
    """
    saved = "2026-11-22T06:40:14Z checkpoint step-00000025 saved in 0.09 s\n"
    pod = pod_of(monkeypatch, START + STEPS, saved)
    pod.before_the_rest = tunnel.cut
    progress = LastLines(Api(access), RECORD).progress(LIMIT_SECONDS)
    assert progress.saved_step == 25
    assert (tunnel.opened, pod.requests) == (2, 2)


@pytest.mark.parametrize("ends_meanwhile", [False, True])
def test_logs_of_pods_go_on_after_cut(
    tunnel: Tunnel, access: Access, monkeypatch: pytest.MonkeyPatch, ends_meanwhile: bool
) -> None:
    """`logs` shows each line of a pod exactly once although the tunnel was cut, also when the pod
    has ended meanwhile. After a cut the log is read again from its last second on.
    """
    pod = pod_of(monkeypatch, START, STEPS)

    def cut() -> None:
        pod.has_ended = ends_meanwhile
        tunnel.cut()

    pod.before_the_rest = cut
    logs, seen = PodLogs(Api(access), place_at(access)), list[str]()
    end = time.monotonic() + LIMIT_SECONDS
    while not logs.follow(logs.pods()):
        assert time.monotonic() < end, f"the log has not come to its end: {seen}"
        seen += [line.text for line in logs.take()]
        time.sleep(0.05)
    seen += [line.text for line in logs.take()]
    assert seen == [line.partition(" ")[2] for line in (START + STEPS).splitlines()]
    assert tunnel.opened == 2

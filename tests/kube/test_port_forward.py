"""A port of a pod is reached from this machine, through the API server alone."""

import http.client
import threading
import urllib.request

import pytest

from infra.kube.port_forward import forwarded
from infra.kube.task_pod import TaskPod, running
from tests.kube.lab import Lab, Run, wait_for
from tests.kube.python_image import PYTHON_IMAGE

PORT = 8000
SERVER = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[::-1])
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Handler).serve_forever()
"""


def reversed_by(port: int, content: bytes) -> bytes:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"http://127.0.0.1:{port}/", data=content, timeout=30) as answer:
        return answer.read()


def answers(port: int) -> bool:
    try:
        return reversed_by(port, b"ab") == b"ba"
    except (OSError, http.client.HTTPException):
        return False


def test_many_bytes_and_connections_go_both_ways(lab: Lab, claim: Run) -> None:
    pod = TaskPod(
        task="server",
        owner=claim.owner,
        namespace=claim.namespace,
        image=PYTHON_IMAGE,
        command=("python3", "-c", SERVER),
        claim=str(claim.more["claim"]),
        deadline_seconds=600,
    )
    with running(lab.api, pod) as path, forwarded(lab.access(), path, PORT, 0) as port:
        wait_for("the server", lambda: answers(port))
        content = bytes(range(256)) * 40_000  # ten megabytes, each byte value
        assert reversed_by(port, content) == content[::-1]
        wrong: list[int] = []

        def ask(number: int) -> None:
            text = str(number).encode() * 1000
            if reversed_by(port, text) != text[::-1]:
                wrong.append(number)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
    with pytest.raises(OSError, match="refused"):
        reversed_by(port, b"x")

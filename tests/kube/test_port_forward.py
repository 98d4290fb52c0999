"""A port of a pod can be reached from this machine through the API server alone."""

import http.client
import threading
import urllib.request
from collections.abc import Iterator

import pytest

from infra.kube.api_server.port_forward import forwarded
from infra.kube.files.task_pod import TaskPod, running
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
    """Return what the server at a port of this machine answers: the reverse of `content`."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"http://127.0.0.1:{port}/", data=content, timeout=30) as answer:
        return answer.read()


def answers(port: int) -> bool:
    try:
        return reversed_by(port, b"ab") == b"ba"
    except (OSError, http.client.HTTPException):
        return False


@pytest.fixture
def server(lab: Lab, claim: Run) -> Iterator[int]:
    """Yield a port of this machine that leads to the server in a pod.

    The fixture checks afterwards that nothing listens there any more.
    """
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
        yield port
    with pytest.raises(OSError, match="refused"):
        reversed_by(port, b"x")


def wrong_answers(port: int, askers: int, times: int) -> list[str]:
    """Return a sentence for each answer that was not the reverse of the text.

    `askers` threads ask at the same time, each `times` times.
    """
    wrong: list[str] = []

    def ask(number: int) -> None:
        for _ in range(times):
            text = str(number).encode() * 1000
            try:
                if reversed_by(port, text) != text[::-1]:
                    wrong.append(f"another text than that of {number}")
            except (OSError, http.client.HTTPException) as reason:
                wrong.append(repr(reason))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(askers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def test_many_bytes_and_connections_go_both_ways(server: int) -> None:
    content = bytes(range(256)) * 40_000  # ten megabytes with every value of a byte
    assert reversed_by(server, content) == content[::-1]
    assert wrong_answers(server, askers=8, times=1) == []


def test_no_connection_gets_the_bytes_of_another(server: int) -> None:
    """No connection through a forwarded port gets bytes of another one, or loses its own.

    Otherwise a thread may close a connection that another thread still reads, and the system gives
    its number to the next connection.
    """
    assert wrong_answers(server, askers=4, times=100) == []

"""The dashboard's server answers only its own page, only on this machine, and changes nothing."""

import http.client
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from cli.dashboard.server import FOLDER, LOOPBACK, PAGE_HEADER, Server, serving
from cli.dashboard.source import UnknownError

OURS = {PAGE_HEADER: "1"}


class Answers:
    """A stand-in for the source: one run, whose name would be dangerous as markup."""

    def see(self, part: str, run_id: str) -> dict[str, Any]:
        if part != "overview":
            raise UnknownError(f"run {run_id!r} is not there")
        return {"part": part, "name": "</script><script>alert(1)</script>"}


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(0, Answers()) as made:
        yield made


def ask(
    server: Server, path: str, headers: Mapping[str, str] | None = None, method: str = "GET"
) -> tuple[int, dict[str, str], str]:
    """Return the status, the headers and the text of the server's answer."""
    connection = http.client.HTTPConnection(LOOPBACK, server.port, timeout=30)
    try:
        connection.request(method, path, headers=dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def test_server_listens_on_the_loopback_interface_alone(server: Server) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"


def test_page_comes_with_a_policy_that_forbids_all_else(server: Server) -> None:
    """The page comes with a content security policy that lets the browser load nothing but the
    page's own files.
    """
    status, headers, text = ask(server, "/")
    assert status == 200
    assert text == (FOLDER / "index.html").read_text()
    policy = headers["Content-Security-Policy"].split("; ")
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{}", "127.0.0.1", "127.0.0.1:1", ""]
)
@pytest.mark.parametrize("path", ["/", "/page.js", "/api/overview"])
def test_other_hosts_names_are_refused(server: Server, host: str, path: str) -> None:
    """A request that names another host or port is refused. Otherwise a page of another host could
    read the answers, after its name was made to lead to this machine (DNS rebinding).
    """
    headers = {"Host": host.format(server.port), **OURS}
    status, _, text = ask(server, path, headers)
    assert status == 403
    assert text == f"Open {server.address} instead.\n"


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST"])
def test_both_names_of_this_machine_are_taken(server: Server, name: str) -> None:
    assert ask(server, "/", {"Host": f"{name}:{server.port}"})[0] == 200


def test_answers_need_the_header_that_only_our_page_sends(server: Server) -> None:
    """An answer about the runs needs a header that only the dashboard's page sends. A page of
    another host can make the browser send a request, but not with that header.
    """
    assert ask(server, "/api/overview")[0] == 403
    status, headers, text = ask(server, "/api/overview", OURS)
    assert status == 200
    assert headers["Content-Type"] == "application/json"
    assert headers["Cache-Control"] == "no-store"
    assert json.loads(text)["part"] == "overview"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_no_method_but_reading_is_known(server: Server, method: str) -> None:
    """Methods that change something are refused, and so is OPTIONS, with which a browser asks
    whether another host's page may send more.
    """
    status, headers, text = ask(server, "/api/overview", OURS, method)
    assert status == 501
    assert "Access-Control-Allow-Origin" not in headers
    assert "<" not in text


def test_head_has_the_headers_and_no_content(server: Server) -> None:
    status, headers, text = ask(server, "/", method="HEAD")
    assert (status, text) == (200, "")
    assert int(headers["Content-Length"]) > 1000


@pytest.mark.parametrize(
    "path", ["/../server.py", "/%2e%2e/server.py", "//etc/passwd", "/page", "/__init__.py"]
)
def test_no_other_file_can_be_had(server: Server, path: str) -> None:
    assert ask(server, path)[0] == 404


def test_run_that_is_not_there_is_said_as_text(server: Server) -> None:
    """The error about an unknown run is plain text, so that a name with markup does no harm."""
    status, headers, text = ask(server, "/api/logs?run=%3Cscript%3E", OURS)
    assert status == 404
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    assert text == "run '<script>' is not there\n"


def test_page_names_no_other_host_and_no_script_of_its_own() -> None:
    """The page's files name no other host, make no markup of text, and have no script or style
    inside the markup.
    """
    for path in FOLDER.iterdir():
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "//" not in text.replace("// ", ""), path
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in text, (path, word)
    html = (FOLDER / "index.html").read_text()
    assert html.count("<script") == 1
    assert "style=" not in html


def test_reader_that_goes_away_leaves_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    """A browser that closes the page while an answer is on its way causes no traceback in the
    terminal.
    """
    asked, gone = threading.Event(), threading.Event()

    class Slow:
        def see(self, part: str, run_id: str) -> dict[str, Any]:
            asked.set()
            assert gone.wait(60)
            return {"text": "x" * (8 << 20)}

    with serving(0, Slow()) as server:
        with socket.create_connection((LOOPBACK, server.port)) as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            host = f"Host: {LOOPBACK}:{server.port}\r\n{PAGE_HEADER}: 1\r\n"
            reader.sendall(f"GET /api/overview HTTP/1.1\r\n{host}\r\n".encode())
            assert asked.wait(60)
        gone.set()
    end = time.monotonic() + 60
    while any("process_request_thread" in each.name for each in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert capfd.readouterr().err == ""


def test_fault_of_the_server_itself_is_still_shown(capfd: pytest.CaptureFixture[str]) -> None:
    """A fault of the server itself is shown in the terminal."""

    class Broken:
        def see(self, part: str, run_id: str) -> dict[str, Any]:
            raise KeyError("a mistake of ours")

    with serving(0, Broken()) as server, pytest.raises(http.client.RemoteDisconnected):
        ask(server, "/api/overview", OURS)
    assert "a mistake of ours" in capfd.readouterr().err

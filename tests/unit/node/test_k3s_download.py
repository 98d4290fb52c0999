"""How a machine downloads k3s from a mirror."""

import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from infra.node.shell_program import assemble_program, script_text

MIRROR = "http://k3s.example/v1.34.2%2Bk3s1/k3s"  # The name leads nowhere.


class Proxy(BaseHTTPRequestHandler):
    """A proxy that answers every request itself, with the address that was asked for."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def proxy() -> Iterator[str]:
    """Return the address of a proxy on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def downloaded(folder: Path, **variables: str) -> str:
    """Download k3s from the mirror with these variables; return the content of the file."""
    text = script_text("lib/k3s-download.sh").replace(
        "readonly SCRATCH=/var/lib/rancher/disttrain-scratch", f"SCRATCH='{folder}'"
    )
    text = text.replace("--retry 3", "--retry 0")  # It would only wait longer.
    fail = 'fail() { echo "$1" >&2; exit 1; }'
    program = assemble_program(f'{fail}\n{text}\ndownload "$URL" "$SCRATCH/k3s"', variables)
    done = subprocess.run(["sh", "-s"], input=program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return (folder / "k3s").read_text()


def test_mirror_over_http_is_reached_by_the_proxy(tmp_path: Path, proxy: str) -> None:
    """A mirror with an http address is downloaded through `httpProxy`, as the doctor tries it. For
    such an address curl only reads the variable in lower case, and would ask the mirror directly.
    """
    assert downloaded(tmp_path, URL=MIRROR, HTTP_PROXY=proxy, NO_PROXY="10.0.0.0/8") == MIRROR


def test_mirror_in_no_proxy_is_reached_directly(tmp_path: Path, proxy: str) -> None:
    """A mirror that NO_PROXY names is asked without the proxy."""
    own = f"{proxy}/k3s"
    given = {"HTTP_PROXY": "http://127.0.0.1:1", "NO_PROXY": "127.0.0.1"}
    assert downloaded(tmp_path, URL=own, **given) == "/k3s"

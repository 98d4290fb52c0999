"""A mirror of k3s releases, which serves over TLS on the test host's loopback.

As a program, `mirror.py FOLDER ADDRESS PORT`, this file is the server. If the folder has a file
`slow`, the server sends large files slowly, as over a bad line.
"""

import http.server
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PORT = 8443
SERVES = b"it serves\n"  # the server prints it when it listens
HERE, OUTSIDE = "127.0.0.1", "127.0.0.7"  # no NO_PROXY has OUTSIDE


class Mirror:
    """The mirror of one host; its files may be changed while it runs.

    Args:
        folder: the folder that it serves.
        enter: the first words of a command line that runs in the host's network namespace.
        fill: a function that puts a version's files into a folder.
    """

    def __init__(self, folder: Path, enter: list[str], fill: Callable[[str, Path], None]) -> None:
        self.folder = folder
        self._fill = fill
        self.url = f"https://{HERE}:{PORT}/k3s"
        self._enter = enter  # The server is a process of this machine in the host's network.
        self._make_certificate()
        self._further: list[subprocess.Popen[bytes]] = []
        self.start()

    def serve_in(self, enter: list[str]) -> None:
        """Serve the same folder on the loopback of a further host."""
        self._further.append(self._serve(HERE, enter))

    def start(self) -> None:
        """Start the server, and return when it listens."""
        self._server = self._serve(HERE, self._enter)

    def _serve(self, address: str, enter: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        server = [*enter, sys.executable, __file__, str(self.folder), address, str(PORT)]
        here = ["setpriv", "--pdeathsig", "KILL"]
        process = subprocess.Popen(
            [*here, *server], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        assert process.stdout
        assert process.stdout.readline() == SERVES, "the mirror has ended"
        return process

    @contextmanager
    def outside(self) -> Iterator[str]:
        """Serve the folder on this machine's loopback, which the host reaches only by a proxy.

        The context gives the URL there.
        """
        with self._serve(OUTSIDE) as server:
            try:
                yield self.url.replace(HERE, OUTSIDE)
            finally:
                server.kill()

    def _make_certificate(self) -> None:
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        subprocess.run(
            [
                *("openssl", "req", "-x509", *curve, "-days", "30", "-subj", "/CN=mirror"),
                *("-addext", f"subjectAltName=IP:{HERE},IP:{OUTSIDE}"),
                *("-keyout", "mirror.key", "-out", "mirror.crt"),
            ],
            cwd=self.folder,
            check=True,
            capture_output=True,
        )

    @property
    def certificate(self) -> str:
        """The server's certificate, for the host's list of authorities."""
        return (self.folder / "mirror.crt").read_text()

    def release(self, version: str) -> Path:
        """Publish a version of k3s, and return its folder."""
        folder = self.folder / "k3s" / version
        folder.mkdir(parents=True, exist_ok=True)
        self._fill(version, folder)
        return folder

    def slow(self, on: bool) -> None:
        """Let the server send large files slowly, or not."""
        mark = self.folder / "slow"
        mark.touch() if on else mark.unlink(missing_ok=True)

    @property
    def requests(self) -> list[str]:
        """The paths of all GET requests so far."""
        log = self.folder / "requests"
        return log.read_text().splitlines() if log.exists() else []

    def close(self) -> None:
        for process in (self._server, *self._further):
            with process as server:
                server.kill()


class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        with Path("requests").open("a") as log:
            log.write(self.path + "\n")
        super().do_GET()

    def copyfile(self, source: object, outputfile: object) -> None:
        while block := source.read(65536):  # type: ignore[attr-defined]
            outputfile.write(block)  # type: ignore[attr-defined]
            if Path("slow").exists():
                time.sleep(0.5)

    def log_message(self, format: str, *args: object) -> None:
        pass


def serve(folder: str, address: str, port: int) -> None:
    os.chdir(folder)
    server = http.server.ThreadingHTTPServer((address, port), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("mirror.crt", "mirror.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    os.write(1, SERVES)
    server.serve_forever()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))

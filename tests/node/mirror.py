"""A mirror of k3s releases, over TLS on the test host's loopback; its k3s is the stand-in.

Run as a program it is the server: `mirror.py FOLDER PORT`. A file `slow` in the folder makes it
send large files as over a bad line.
"""

import hashlib
import http.server
import os
import ssl
import subprocess
import sys
import time
from pathlib import Path

STAND_IN = Path(__file__).parent / "stand_in"
PORT = 8443
IMAGES = "k3s-airgap-images-amd64.tar.zst"  # their content is read by nobody here
BINARY_BYTES = 4_000_000


class Mirror:
    """The mirror of one host; its files may be changed while it runs."""

    def __init__(self, folder: Path, enter: list[str]) -> None:
        self.folder = folder
        self.url = f"https://127.0.0.1:{PORT}/k3s"
        # only into the network namespace: files and Python are this machine's
        server = [*enter, sys.executable, __file__, str(folder), str(PORT)]
        self._command = ["setpriv", "--pdeathsig", "KILL", *server]
        self._make_certificate()
        self.start()

    def start(self) -> None:
        """Serve; it answers a moment later."""
        self._server = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)

    def _make_certificate(self) -> None:
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        subprocess.run(
            [
                *("openssl", "req", "-x509", *curve, "-days", "30", "-subj", "/CN=mirror"),
                *("-addext", "subjectAltName=IP:127.0.0.1"),
                *("-keyout", "mirror.key", "-out", "mirror.crt"),
            ],
            cwd=self.folder,
            check=True,
            capture_output=True,
        )

    @property
    def certificate(self) -> str:
        """For the host's list of authorities."""
        return (self.folder / "mirror.crt").read_text()

    def release(self, version: str) -> Path:
        """Publish a version; returns its folder."""
        folder = self.folder / "k3s" / version
        folder.mkdir(parents=True, exist_ok=True)
        program = (STAND_IN / "k3s").read_text().replace("@VERSION@", version)
        padding = "# " + "x" * 77 + "\n"
        (folder / "k3s").write_text(program + padding * (BINARY_BYTES // len(padding)))
        (folder / "install.sh").write_text((STAND_IN / "install.sh").read_text())
        (folder / IMAGES).write_bytes(f"images of {version}\n".encode() * 100_000)
        files = {"sha256sum-amd64.txt": ("k3s", IMAGES), "install.sh.sha256sum": ("install.sh",)}
        for sums, names in files.items():
            lines = [f"{sha256(folder / name)}  {name}\n" for name in names]
            (folder / sums).write_text("".join(lines))
        arm = folder / "sha256sum-amd64.txt"  # the same file serves a test on an arm64 machine
        listed = arm.read_text().replace("amd64", "arm64").replace(" k3s\n", " k3s-arm64\n")
        (folder / "sha256sum-arm64.txt").write_text(listed)
        (folder / IMAGES.replace("amd64", "arm64")).write_bytes((folder / IMAGES).read_bytes())
        (folder / "k3s-arm64").write_bytes((folder / "k3s").read_bytes())
        return folder

    def slow(self, on: bool) -> None:
        """Whether large files trickle."""
        mark = self.folder / "slow"
        mark.touch() if on else mark.unlink(missing_ok=True)

    @property
    def requests(self) -> list[str]:
        """Paths that were asked for."""
        log = self.folder / "requests"
        return log.read_text().splitlines() if log.exists() else []

    def close(self) -> None:
        self._server.kill()
        self._server.wait()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


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


def serve(folder: str, port: int) -> None:
    os.chdir(folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("mirror.crt", "mirror.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))

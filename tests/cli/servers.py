"""Real servers on the loopback for tests: an sshd, a proxy with a password, and web servers."""

import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import create_connection

from tests.ports import free_port

USER, PASSWORD = "me", "hunter2"
LOOPBACK = "127.0.0.1"


def wait_for_port(
    port: int, process: subprocess.Popen[bytes], log: Path, address: str = LOOPBACK
) -> None:
    """Return once something listens on the port; fail with the log if the process ends first."""
    deadline = time.monotonic() + 120
    while True:
        try:
            create_connection((address, port), timeout=1).close()
            return
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)


@contextmanager
def running(
    command: list[str], port: int, log: Path, address: str = LOOPBACK
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server, wait until its port answers, yield its process, and end it afterwards."""
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as server,
    ):
        try:
            wait_for_port(port, server, log, address)
            yield server
        finally:
            server.terminate()
            server.wait(timeout=120)


@dataclass(frozen=True)
class Sshd:
    """A running sshd that lets in the user who runs the tests."""

    port: int
    host_key: str
    identity: Path
    log: Path

    def logins(self) -> int:
        """Return how many logins the sshd has accepted."""
        return self.log.read_text().count("Accepted publickey")


def make_key(file: Path, kind: str = "ed25519", password: str = "") -> str:
    """Write an SSH key to `file` and its public half to `file`.pub; return the public half."""
    command = ["ssh-keygen", "-q", "-t", kind, "-N", password, "-C", "", "-f", str(file)]
    subprocess.run(command, check=True)
    return file.with_suffix(".pub").read_text().strip()


@contextmanager
def sshd(folder: Path, instead: Path | None = None) -> Iterator[Sshd]:
    """Run OpenSSH's server with keys of its own, and yield its address and keys.

    If the program `instead` is given, the server runs it in place of every command. The command is
    then in its variable SSH_ORIGINAL_COMMAND.
    """
    Path("/run/sshd").mkdir(exist_ok=True)
    port, log = free_port(), folder / "sshd.log"
    host_key = make_key(folder / "host_key")
    (folder / "authorized").write_text(make_key(folder / "identity") + "\n")
    (folder / "config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder}/host_key\n"
        f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nPidFile none\n"
        "UsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\nLogLevel INFO\n"
        + (f"ForceCommand {instead}\n" if instead else "")
    )
    with running(["/usr/sbin/sshd", "-D", "-e", "-f", str(folder / "config")], port, log):
        yield Sshd(port, host_key, folder / "identity", log)


@contextmanager
def proxy(
    folder: Path, *, password: bool = True, address: str = LOOPBACK, port: int = 0
) -> Iterator[int]:
    """Run tinyproxy and yield its port. With `password` it demands USER and PASSWORD."""
    port, log = port or free_port(address), folder / f"proxy-{password}.log"
    config = folder / f"proxy-{password}.conf"
    auth = f"BasicAuth {USER} {PASSWORD}\n" if password else ""
    config.write_text(
        f"Port {port}\nListen {address}\nAllow {address}/30\nTimeout 20\nMaxClients 20\n"
        f"LogLevel Connect\n{auth}"
    )
    with running(["tinyproxy", "-d", "-c", str(config)], port, log, address):
        yield port


class Page(BaseHTTPRequestHandler):
    """A web server's handler that answers a request for any path with the same text."""

    text = b"To be, or not to be, that is the question:\n" * 40
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.text)))
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        self.wfile.write(self.text)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def web_server(certificate: Path | None = None) -> Iterator[int]:
    """Run a web server and yield its port. With a file of a certificate and its key it uses TLS."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    server.handle_error = lambda request, client_address: None  # pyright: ignore[reportAttributeAccessIssue]
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def make_certificate(file: Path) -> str:
    """Write a self-signed certificate for 127.0.0.1 and its key to `file`; return the certificate
    alone.
    """
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", f"{file}.key", "-out", str(file)]
    subprocess.run(command, check=True, capture_output=True)
    text = file.read_text()
    file.write_text(text + Path(f"{file}.key").read_text())
    return text

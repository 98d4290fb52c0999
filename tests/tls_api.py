"""Runs a TLS server behind a gate in place of an API server, and makes kubeconfigs for it."""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sandbox.kubeconfig import write_kubeconfig
from sandbox.pki import Certificate, make_pki
from tests.gate import Gate

NAME = "api.test"  # the name in the certificate; no DNS knows it


@contextmanager
def tls_api(folder: Path, handler: type[BaseHTTPRequestHandler]) -> Iterator[Gate]:
    """Run the server and yield its gate. Clients need the certificate that `kubeconfig_of` uses for
    the same folder.
    """
    pki = folder / "pki"
    api = Certificate("api", "api", "serverAuth", alternative_names=(f"DNS:{NAME}",))
    make_pki(pki, [api, Certificate("admin", "admin")])
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pki / "api.crt", pki / "api.key")
    tls.load_verify_locations(pki / "ca.crt")
    tls.verify_mode = ssl.CERT_REQUIRED
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    gate = Gate(server.server_address[:2])  # pyright: ignore[reportArgumentType]
    try:
        yield gate
    finally:
        gate.close()
        server.shutdown()
        server.server_close()


def kubeconfig_of(gate: Gate, folder: Path, name: str = NAME) -> dict[str, Any]:
    """Return the content of a kubeconfig. `name` is the name that the server's certificate must
    have.
    """
    path = folder / "kubeconfig"
    address = f"https://127.0.0.1:{gate.port}"
    write_kubeconfig(path, server=address, name="t", pki=folder / "pki", certificate="admin")
    content = json.loads(path.read_text())
    content["clusters"][0]["cluster"]["tls-server-name"] = name
    return content

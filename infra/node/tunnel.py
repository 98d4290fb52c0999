"""A credential plugin for kubeconfigs that reaches the API server through the SSH port only.

Clients such as kubectl and Pulumi's provider run this file before they talk to the cluster, and
again when the credentials that it prints expire (client-go's exec plugins). It opens an SSH tunnel
if none is open, and prints the client certificate that k3s has made. The tunnel ends by itself a
while later.

This file uses only the standard library, and works with Python 3.9 and newer, because its text is
the program in the kubeconfigs that infra/node/tunnel_kubeconfig.py makes.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.node.ssh_files import ssh_command

VARIABLE = "DISTTRAIN_TUNNEL"
API_VERSION = "client.authentication.k8s.io/v1"
TUNNEL_SECONDS = 900  # Open connections keep the tunnel open longer.
CREDENTIAL_SECONDS = 600  # Less, so that clients ask again before the tunnel can end.
FIRST_PORT, PORTS = 20000, 10000  # Systems give higher ports to clients.
ANSWER_SECONDS = 5


def local_port(spec: Mapping[str, Any]) -> int:
    """The tunnel's port on this machine.

    It is always the same for a host, so that the kubeconfig does not change. Behind another jump
    host the same address may be another machine, which gets another port.
    """
    hops = [hop for hop in (spec, spec["jump"]) if hop]
    way = " ".join(f"{hop['user']}@{hop['host']}:{hop['port']}" for hop in hops)
    digest = hashlib.sha256(way.encode()).digest()
    return FIRST_PORT + int.from_bytes(digest[:4], "big") % PORTS


def is_open(port: int) -> bool:
    """Whether a program listens on the port.

    It may be another program than the tunnel. Clients notice that, because TLS with the cluster's
    CA fails then.
    """
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def api_server(spec: Mapping[str, Any]) -> str:
    """The address of the API server, as the host sees it."""
    return f"127.0.0.1:{spec['api_port']}"


def open_tunnel(spec: Mapping[str, Any], port: int) -> None:
    """Start ssh in the background. When this function returns, ssh has authenticated.

    Raises:
        RuntimeError: there is no tunnel. The text has ssh's last lines, which say for instance that
            the host refuses the key, that its host key is another one, or that the port is taken.
    """
    # Only this user can read the folder.
    with tempfile.TemporaryDirectory(prefix="disttrain-tunnel-") as folder:
        forward = f"127.0.0.1:{port}:{api_server(spec)}"
        # A session with `sleep`, instead of -N, lets ssh end when the time is up and nobody uses
        # the tunnel any more.
        command = ssh_command(spec, Path(folder), "-f", "-L", forward)
        with tempfile.TemporaryFile() as log:
            done = subprocess.run(
                [*command, "sleep", str(TUNNEL_SECONDS)],
                stdin=subprocess.DEVNULL,
                stdout=log,  # A pipe would stay open as long as the tunnel.
                stderr=log,
                check=False,
                start_new_session=True,
            )
            log.seek(0)
            lines = log.read().decode(errors="replace").splitlines()[-5:]
        # If the port is open nevertheless, another run of this program was faster.
        if done.returncode and not is_open(port):
            raise RuntimeError("no tunnel to the node: " + " / ".join(lines))


def is_answered(port: int) -> bool:
    """Whether something answers through the tunnel, or at least does not end the connection.

    The API server answers a request without TLS at once, with an error.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS) as probe:
            probe.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return bool(probe.recv(1))
    except ConnectionError:
        return False
    except OSError:  # There was no answer in time.
        return True


def refuse_forbidden_tunnel(spec: Mapping[str, Any]) -> None:
    """Tell a host that forbids tunnels from one on which the API server does not run.

    ssh opens a tunnel to both. Only at the first connection it learns what is wrong, and the ssh in
    the background cannot report it.

    Raises:
        RuntimeError: the host's SSH server forbids tunnels.
    """
    with tempfile.TemporaryDirectory(prefix="disttrain-tunnel-") as folder:
        try:
            done = subprocess.run(
                ssh_command(spec, Path(folder), "-W", api_server(spec)),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=ANSWER_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return  # The host does not answer, or the connection is there.
    if b"administratively prohibited" in done.stderr:
        raise RuntimeError(
            f"the SSH server of {spec['host']} forbids tunnels, which clusterAccess: tunnel needs. "
            "Set AllowTcpForwarding to local or yes in its /etc/ssh/sshd_config, or set "
            "clusterAccess: direct"
        )


def credential(spec: Mapping[str, Any]) -> str:
    """The JSON text that client-go reads from the plugin."""
    lifetime = datetime.timedelta(seconds=CREDENTIAL_SECONDS)
    now = datetime.datetime.now(datetime.timezone.utc)  # noqa: UP017 # older Pythons have no UTC
    expires = (now + lifetime).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {**spec["credentials"], "expirationTimestamp": expires}
    return json.dumps({"apiVersion": API_VERSION, "kind": "ExecCredential", "status": status})


def main() -> None:
    """Open the tunnel if it is not open, and print the credentials."""
    spec = json.loads(os.environ.pop(VARIABLE))
    port = local_port(spec)
    try:
        if not is_open(port):
            open_tunnel(spec, port)
        if not is_answered(port):
            refuse_forbidden_tunnel(spec)
    except (OSError, RuntimeError) as error:
        sys.exit(str(error))
    print(credential(spec))


if __name__ == "__main__":
    main()

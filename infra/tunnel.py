"""Reaches the API server through port 22 alone: a credential plugin for kubeconfigs.

Clients (kubectl, Pulumi's provider) run this file before they talk to the cluster, and again when
the credentials that it prints expire (client-go's exec plugins). It opens an SSH tunnel if none is
open, and prints the client certificate that k3s made. The tunnel ends by itself a while later.
Standard library only: it runs as a program, apart from the project's virtualenv.
"""

import base64
import datetime
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VARIABLE = "DISTTRAIN_TUNNEL"
API_VERSION = "client.authentication.k8s.io/v1"
TUNNEL_SECONDS = 900  # open connections hold it longer
CREDENTIAL_SECONDS = 600  # less: clients ask again before the tunnel can end
CONNECT_SECONDS = 20
FIRST_PORT, PORTS = 20000, 10000  # below the ports that systems give to clients


def local_port(host: str, port: int, user: str) -> int:
    """The tunnel's port on this machine: always the same for a host, so that kubeconfigs stay."""
    digest = hashlib.sha256(f"{user}@{host}:{port}".encode()).digest()
    return FIRST_PORT + int.from_bytes(digest[:4], "big") % PORTS


def tunnelled(kubeconfig: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """The kubeconfig of k3s, turned to the tunnel's end; the authority is kept.

    Args:
        kubeconfig: as k3s writes it, with one cluster and one user, server at 127.0.0.1:6443.
        spec: how to get to the host: host, port, user, host_key, private_key or None, and jump,
            which is None or the same without private_key.
    """
    (cluster,), (user,) = kubeconfig["clusters"], kubeconfig["users"]
    port = local_port(spec["host"], spec["port"], spec["user"])
    server = {**cluster["cluster"], "server": f"https://127.0.0.1:{port}"}
    credentials = {
        name: base64.b64decode(user["user"][f"client-{key}-data"]).decode()
        for name, key in (("clientCertificateData", "certificate"), ("clientKeyData", "key"))
    }
    plugin = {
        "apiVersion": API_VERSION,
        "command": sys.executable,
        "args": [str(Path(__file__).resolve())],
        "env": [{"name": VARIABLE, "value": json.dumps({**spec, "credentials": credentials})}],
        "interactiveMode": "Never",
        "provideClusterInfo": False,
    }
    return {
        **kubeconfig,
        "clusters": [{**cluster, "cluster": server}],
        "users": [{**user, "user": {"exec": plugin}}],
    }


def ssh_config(spec: Mapping[str, Any], folder: Path) -> str:
    """The configuration for `ssh node`: pinned keys, nothing asked, dead lines noticed."""
    common = {
        "UserKnownHostsFile": folder / "known_hosts",
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "BatchMode": "yes",
        "ConnectTimeout": CONNECT_SECONDS,
        "ServerAliveInterval": 15,
        "ExitOnForwardFailure": "yes",
    }
    if spec["private_key"]:
        common |= {"IdentityFile": folder / "key", "IdentitiesOnly": "yes"}
    lines: list[str] = []
    for name, hop in (("node", spec), ("jump", spec["jump"])):
        if hop:
            values = {"HostName": hop["host"], "Port": hop["port"], "User": hop["user"], **common}
            values["HostKeyAlias"] = name
            if name == "node" and spec["jump"]:
                values["ProxyCommand"] = f"ssh -F {folder / 'config'} -W %h:%p jump"
            lines += [f"Host {name}", *(f"  {key} {value}" for key, value in values.items())]
    return "\n".join([*lines, ""])


def known_hosts(spec: Mapping[str, Any]) -> str:
    """The pinned keys, under the names of `ssh_config`."""
    hops = (("node", spec), ("jump", spec["jump"]))
    return "".join(f"{name} {hop['host_key']}\n" for name, hop in hops if hop)


def is_open(port: int) -> bool:
    """Whether something listens; that it is the right one, TLS with the cluster's CA proves."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def open_tunnel(spec: Mapping[str, Any], port: int) -> None:
    """Start ssh in the background; it has authenticated when this returns.

    Raises:
        RuntimeError: ssh's last lines: refused, another host key, port taken.
    """
    folder = Path(tempfile.mkdtemp(prefix="disttrain-tunnel-"))  # readable by this user alone
    try:
        (folder / "known_hosts").write_text(known_hosts(spec))
        (folder / "config").write_text(ssh_config(spec, folder))
        if spec["private_key"]:
            key = folder / "key"
            key.touch(mode=0o600)
            key.write_text(spec["private_key"].rstrip("\n") + "\n")
        forward = f"127.0.0.1:{port}:127.0.0.1:6443"
        # A session that lasts so long, instead of -N: then ssh ends when nobody uses it any more.
        command = ["ssh", "-F", str(folder / "config"), "-f", "-L", forward, "node"]
        with tempfile.TemporaryFile() as log:
            done = subprocess.run(
                [*command, "sleep", str(TUNNEL_SECONDS)],
                stdin=subprocess.DEVNULL,
                stdout=log,  # a pipe would stay open as long as the tunnel
                stderr=log,
                check=False,
                start_new_session=True,
            )
            log.seek(0)
            lines = log.read().decode(errors="replace").splitlines()[-5:]
        if done.returncode and not is_open(port):  # another run of this may have been faster
            raise RuntimeError("no tunnel to the node: " + " / ".join(lines))
    finally:
        shutil.rmtree(folder)


def credential(spec: Mapping[str, Any]) -> str:
    """What client-go reads from the plugin."""
    lifetime = datetime.timedelta(seconds=CREDENTIAL_SECONDS)
    expires = (datetime.datetime.now(datetime.UTC) + lifetime).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {**spec["credentials"], "expirationTimestamp": expires}
    return json.dumps({"apiVersion": API_VERSION, "kind": "ExecCredential", "status": status})


def main() -> None:
    """Open the tunnel if it is not open, and print the credentials."""
    spec = json.loads(os.environ.pop(VARIABLE))
    port = local_port(spec["host"], spec["port"], spec["user"])
    if not is_open(port):
        try:
            open_tunnel(spec, port)
        except (OSError, RuntimeError) as error:
            sys.exit(str(error))
    print(credential(spec))


if __name__ == "__main__":
    main()

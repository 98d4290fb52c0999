"""Answers, on port 6443, a machine that wants to join and so has no certificate yet.

As in k3s, everyone gets the authority. For the agents' token a machine gets a certificate, if it
shows the password with which the first machine of its name joined. The server keeps the password's
hash in the Secret `<name>.node-password.k3s` of kube-system. For the agents' token it also tells
the settings of the cluster in which servers have to agree. Only for the servers' own token it gives
the authority with its key, and the members of etcd, to a machine that wants to be a server.
It uses only the standard library.
"""

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import member  # pyright: ignore # beside this file there
from cluster import Socket, administrator, ask  # pyright: ignore # this one too

CONFIG = "/v1-k3s/config"
TOKEN = Path("/var/lib/rancher/k3s/server/token")
REJECTED = "Node password rejected, duplicate hostname or contents of '/etc/rancher/node/password'"
REJECTED += " may not match server node-passwd entry, try enabling a unique node name with the"
REJECTED += " --with-node-id flag"


def answer(cluster: Path, tls: Path, path: str, headers: dict[str, str]) -> tuple[int, str]:
    """Return the HTTP status and the content of the answer.

    Args:
        cluster: folder with the socket of the API server and its administrator's certificate.
        tls: folder of k3s' own certificates.
        path: the path of the request.
        headers: the headers of the request, with names in lower case.
    """
    if path == "/cacerts":
        return 200, (tls / "ca.crt").read_text()
    if path in OF_SERVERS:
        own = base64.b64encode(f"server:{TOKEN.read_text().strip()}".encode()).decode()
        if headers.get("authorization") != f"Basic {own}":
            return 401, "not authorized: this is not the token of servers"
        return 200, json.dumps(OF_SERVERS[path](tls))
    if path not in ("/v1-k3s/serving-kubelet", CONFIG):
        return 404, "not found"
    token = TOKEN.with_name("agent-token").read_text().strip()
    of_agents = base64.b64encode(f"node:{token}".encode()).decode()
    if headers.get("authorization") != f"Basic {of_agents}":
        return 401, "not authorized: this is not the token of agents"
    if path == CONFIG:
        return 200, json.dumps(member.critical_settings())
    name, password = headers["k3s-node-name"], headers["k3s-node-password"]
    if not is_known(cluster, name, hashlib.sha256(password.encode()).hexdigest()):
        return 403, REJECTED
    # k3s makes a certificate for the kubelet. This is the administrator's: no rights are checked.
    return 200, json.dumps({n: (tls / n).read_text() for n in ("client.crt", "client.key")})


def authority(tls: Path) -> dict[str, str]:
    """Return the authority with its key, which all servers share, and the kubeconfig's pair."""
    names = ("ca.crt", "ca.key", "client.crt", "client.key", "client.csr")
    return {name: (tls / name).read_text() for name in names}


OF_SERVERS: dict[str, Callable[[Path], Any]] = {
    "/v1-k3s/server-bootstrap": authority,
    "/db/info": lambda _: member.members(),
}


def is_known(cluster: Path, name: str, digest: str) -> bool:
    """Return whether this is the password of the first machine of this name.

    If no machine of this name has joined before, the password is recorded as that machine's.
    """
    secrets, secret = "/api/v1/namespaces/kube-system/secrets", f"{name}.node-password.k3s"
    data = {"hash": base64.b64encode(digest.encode()).decode()}
    try:
        api = Socket(cluster / "api.sock", administrator(cluster))
        return ask(api, "GET", f"{secrets}/{secret}")["data"] == data
    except OSError as error:
        if " 404 " not in str(error):
            raise
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}, "data": data}
    api = Socket(cluster / "api.sock", administrator(cluster))
    ask(api, "POST", secrets, {**body, "immutable": True})
    return True

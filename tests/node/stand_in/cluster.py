"""What the stand-in of k3s knows about the API server behind it; see tests/node/api_server.py.

k3s is a database, an API server and a kubelet in one process. Here the API server and its etcd run
outside of the test host, and this module does what k3s does to them: it begins with an empty
database where there was none, and keeps the Node and its Lease. Standard library only, because the
test host has nothing else.
"""

import http.client
import json
import socket
import ssl
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

NODE = "gpu-node"
FIRST_KEYS = "first-keys.json"  # of etcd, when the API server had made its own objects
APPLY = "application/apply-patch+yaml"
ALL = (b"/registry/", b"/registry0")  # etcd's ranges end before the second key
KEYS_IN_A_REQUEST = 100  # etcd takes 128
SECONDS = 30


class Socket(http.client.HTTPConnection):
    """HTTP by a Unix socket, with TLS where a context is given."""

    def __init__(self, path: Path, tls: ssl.SSLContext | None = None) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self._path, self._tls = path, tls

    def connect(self) -> None:
        plain = socket.socket(socket.AF_UNIX)
        self.sock = plain  # from now on `close` closes it
        plain.settimeout(SECONDS)
        plain.connect(str(self._path))
        if self._tls:
            self.sock = self._tls.wrap_socket(plain, server_hostname="localhost")


def administrator(folder: Path) -> ssl.SSLContext:
    """The TLS settings of the API server's administrator."""
    context = ssl.create_default_context(cafile=str(folder / "pki" / "ca.crt"))
    context.load_cert_chain(folder / "pki" / "admin.crt", folder / "pki" / "admin.key")
    return context


def ask(connection: Socket, method: str, path: str, body: Any = None, kind: str = "") -> Any:
    """The JSON answer; raises OSError with the server's text where it refuses."""
    content = None if body is None else json.dumps(body)
    try:
        connection.request(method, path, content, {"Content-Type": kind or "application/json"})
        answer = connection.getresponse()
        status, text = answer.status, answer.read().decode()
    except http.client.HTTPException as error:
        raise OSError(repr(error)) from error
    finally:
        connection.close()
    if status >= 300:
        raise OSError(f"{method} {path}: {status} {text}")
    return json.loads(text) if text.startswith("{") else text


def keys(folder: Path) -> set[str]:
    """Of all objects in the database."""
    start, end = (b64encode(key).decode() for key in ALL)
    wanted = {"key": start, "range_end": end, "keys_only": True}
    found = ask(Socket(folder / "etcd.sock"), "POST", "/v3/kv/range", wanted)
    return {b64decode(item["key"]).decode() for item in found.get("kvs", ())}


def new_database(folder: Path) -> None:
    """Take every object away that the API server had not made by itself: k3s starts anew."""
    first = set(json.loads((folder / FIRST_KEYS).read_text()))
    made = sorted(keys(folder) - first)
    for begin in range(0, len(made), KEYS_IN_A_REQUEST):
        some = made[begin : begin + KEYS_IN_A_REQUEST]
        etcd = Socket(folder / "etcd.sock")
        ask(etcd, "POST", "/v3/kv/txn", {"success": [_removal(key) for key in some]})


def _removal(key: str) -> dict[str, Any]:
    return {"request_delete_range": {"key": b64encode(key.encode()).decode()}}


def be_the_node(folder: Path, version: str) -> None:
    """What k3s' kubelet writes as it starts: the Node, that it is Ready, and its Lease."""
    api = Socket(folder / "api.sock", administrator(folder))
    now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    address = [{"type": "InternalIP", "address": "203.0.113.254"}]
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "stand-in"}
    ready |= {"lastTransitionTime": f"{now}Z", "lastHeartbeatTime": f"{now}Z"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
    information = dict.fromkeys(NODE_INFORMATION, "stand-in") | {"kubeletVersion": version}
    status = {"conditions": [ready], "addresses": address, "nodeInfo": information}
    _apply(api, "/api/v1/nodes/" + NODE, {**node, "spec": {"podCIDR": "10.42.0.0/24"}})
    _apply(api, f"/api/v1/nodes/{NODE}/status", {**node, "status": status})
    renew(folder)


def renew(folder: Path) -> None:
    """What the kubelet does every 10 seconds for as long as it lives."""
    api = Socket(folder / "api.sock", administrator(folder))
    seconds, rest = divmod(time.time_ns() // 1000, 1_000_000)
    now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:06d}Z"
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": NODE, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": NODE, "renewTime": now},
    }
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}"
    _apply(api, path, lease)


NODE_INFORMATION: Iterable[str] = (
    *("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion"),
    *("kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture"),
)


def _apply(api: Socket, path: str, body: dict[str, Any]) -> None:
    ask(api, "PATCH", f"{path}?fieldManager=k3s&force=true", body, APPLY)

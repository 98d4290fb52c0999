"""What the stand-in of k3s does with the API server behind it (tests/node/api_server.py).

k3s is a database, an API server and a kubelet in one process. Here the API server and its etcd run
outside of the test host, and this module does what k3s does to them. It begins with an empty
database if k3s is new, and it keeps the Node and its Lease. It uses only the standard library,
because the test host has nothing else.
"""

import http.client
import json
import os
import socket
import ssl
import subprocess
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NODE = "gpu-node"
FIRST_KEYS = "first-keys.json"  # lists etcd's keys of the objects that the API server itself made
ETCD_PROGRAM = "etcd-of-k3s"  # in the same folder, for servers with an etcd of their own
APPLY = "application/apply-patch+yaml"
ALL = (b"/registry/", b"/registry0")  # a range of etcd ends before its second key
KEYS_IN_A_REQUEST = 100  # etcd accepts 128 at most
SECONDS = 30


def notify() -> None:
    """Tell systemd that the service is up."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.connect(os.environ["NOTIFY_SOCKET"].replace("@", "\0", 1))
        systemd.send(b"READY=1")


class Socket(http.client.HTTPConnection):
    """An HTTP connection over a Unix socket, with TLS if a context is given."""

    def __init__(self, path: Path, tls: ssl.SSLContext | None = None) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self._path, self._tls = path, tls

    def connect(self) -> None:
        plain = socket.socket(socket.AF_UNIX)
        self.sock = plain  # so that `close` closes it from now on
        plain.settimeout(SECONDS)
        plain.connect(str(self._path))
        if self._tls:
            self.sock = self._tls.wrap_socket(plain, server_hostname="localhost")


def administrator(folder: Path) -> ssl.SSLContext:
    """Return the TLS settings of the API server's administrator."""
    context = ssl.create_default_context(cafile=str(folder / "pki" / "ca.crt"))
    context.load_cert_chain(folder / "pki" / "admin.crt", folder / "pki" / "admin.key")
    return context


def ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: Any = None, kind: str = ""
) -> Any:
    """Return the answer, decoded if it is JSON.

    Raise OSError with the server's text if it refuses.
    """
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
    """Return the keys of all objects in the database."""
    start, end = (b64encode(key).decode() for key in ALL)
    wanted = {"key": start, "range_end": end, "keys_only": True}
    found = ask(Socket(folder / "etcd.sock"), "POST", "/v3/kv/range", wanted)
    return {b64decode(item["key"]).decode() for item in found.get("kvs", ())}


def new_database(folder: Path) -> None:
    """Delete every object that the API server had not made itself, as for a new k3s."""
    first = set(json.loads((folder / FIRST_KEYS).read_text()))
    made = sorted(keys(folder) - first)
    for begin in range(0, len(made), KEYS_IN_A_REQUEST):
        some = made[begin : begin + KEYS_IN_A_REQUEST]
        etcd = Socket(folder / "etcd.sock")
        ask(etcd, "POST", "/v3/kv/txn", {"success": [_removal(key) for key in some]})


def _removal(key: str) -> dict[str, Any]:
    return {"request_delete_range": {"key": b64encode(key.encode()).decode()}}


@dataclass(frozen=True)
class Node:
    """A node as a kubelet registers it; a taint is the text `key=value:Effect`."""

    name: str
    version: str
    labels: dict[str, str] = field(default_factory=dict[str, str])
    taints: list[str] = field(default_factory=list[str])
    address: str = "203.0.113.254"


def own_address(interface: str) -> str:
    """Return the address that k3s uses for the node.

    It is that of the named interface, or of the default route's interface if the name is empty.

    Raises:
        OSError: k3s would not start with this interface.
    """
    device = interface or default_device()
    words = ["ip", "-4", "-o", "address", "show", "dev", device, "up", "scope", "global"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    found = [line.split()[3].partition("/")[0] for line in done.stdout.splitlines()]
    if len(found) == 1:
        return found[0]
    if interface:
        raise OSError(f"interface {interface} does not have a correct global unicast ip: {found}")
    return Node.address


def default_device() -> str:
    """Return the network interface of the default route; empty if there is no default route."""
    words = ["ip", "-4", "route", "show", "default"]
    found = subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()
    return found[found.index("dev") + 1] if "dev" in found else ""


def be_the_node(folder: Path, node: Node) -> None:
    """Do what the kubelet of a server does when it starts: register the Node, renew its Lease."""
    api = Socket(folder / "api.sock", administrator(folder))
    register(api, node)
    renew(api, node.name)


def register(api: http.client.HTTPConnection, node: Node) -> None:
    """Write what a kubelet writes at its start: the Node, if it is missing, and its readiness."""
    path = f"/api/v1/nodes/{node.name}"
    try:
        ask(api, "GET", path)
    except OSError as error:
        if " 404 " not in str(error):
            raise
        spec = {"podCIDR": "10.42.0.0/24"} if node.name == NODE else {}
        metadata = {"name": node.name, "labels": node.labels}
        taints = [_taint(text) for text in node.taints]
        body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        ask(api, "POST", "/api/v1/nodes", {**body, "spec": {**spec, "taints": taints}})
    now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "stand-in"}
    ready |= {"lastTransitionTime": f"{now}Z", "lastHeartbeatTime": f"{now}Z"}
    information = dict.fromkeys(NODE_INFORMATION, "stand-in") | {"kubeletVersion": node.version}
    addresses = [{"type": "InternalIP", "address": node.address}]
    status = {"conditions": [ready], "addresses": addresses, "nodeInfo": information}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name}}
    _apply(api, f"{path}/status", {**body, "status": status})


def _taint(text: str) -> dict[str, str]:
    key_and_value, _, effect = text.rpartition(":")
    key, _, value = key_and_value.partition("=")
    return {"key": key, "value": value, "effect": effect}


def renew(api: http.client.HTTPConnection, name: str) -> None:
    """Renew the Node's Lease, as a running kubelet does every 10 seconds."""
    seconds, rest = divmod(time.time_ns() // 1000, 1_000_000)
    now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:06d}Z"
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": name, "renewTime": now},
    }
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"
    _apply(api, path, lease)


NODE_INFORMATION: Iterable[str] = (
    *("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion"),
    *("kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture"),
)


def _apply(api: http.client.HTTPConnection, path: str, body: dict[str, Any]) -> None:
    ask(api, "PATCH", f"{path}?fieldManager=k3s&force=true", body, APPLY)

"""The stand-in's embedded registry (k3s has Spegel), over the content of a real containerd.

It runs as `sharing.py CLUSTER-FOLDER OWN-ADDRESS REGISTRY...`. The node's own containerd asks it
for an image of these registries. It asks the other nodes, and passes on what the first node has
that offers it. As with Spegel:
- a node offers a tag if its containerd has an image of that name; it offers content if that is
  labelled with the registry from which it came, and is part of an image that has a name with a
  digest. An image that `ctr` has imported has neither (k3s#13222);
- only images of these registries are offered, and nothing is fetched from a registry itself;
- a node must be reachable at both of its ports 5001 and 6443.
Unlike Spegel it has no distributed hash table. It learns of the other nodes from their Node
objects, and asks each of them over HTTP at port 5001. It uses only the standard library.
"""

import http.client
import json
import socket
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copyfileobj
from subprocess import run
from urllib.parse import parse_qs, urlsplit

from cluster import Socket, administrator, ask  # pyright: ignore # beside this file there
from containers import CONTENT, LOCAL_PORT, SOCKET  # pyright: ignore # this one too

PEER_PORT, API_PORT = 5001, 6443
CONNECT_SECONDS = 2  # a machine's kernel accepts a connection however busy the machine is
ANSWER_SECONDS = 60
SENT = Path("/lab/sent")  # notes what other nodes got; each line is `ADDRESS DIGEST BYTES`
SOURCE = "containerd.io/distribution.source."


def ctr(cluster: Path, *words: str) -> list[list[str]]:
    """Return the rows of a list of `ctr`, each as its words."""
    command = [cluster / "ctr", "--address", SOCKET, "--namespace", "k8s.io", *words]
    text = run(command, capture_output=True, text=True, check=True).stdout
    return [line.split() for line in text.splitlines()[1:]]


def blob(digest: str) -> Path:
    """Return the path of a blob in containerd's content."""
    return CONTENT / digest.replace(":", "/")


def parts(digest: str) -> set[str]:
    """Return the digests of an image's blobs, also the manifest's; empty without a manifest."""
    if not blob(digest).exists():
        return set()
    manifest = json.loads(blob(digest).read_bytes())
    return {digest, manifest["config"]["digest"], *(each["digest"] for each in manifest["layers"])}


def offered(cluster: Path, host: str, path: str, reference: str) -> str:
    """Return the digest of what is asked for; empty if this node does not offer it."""
    names = {row[0]: row[2] for row in ctr(cluster, "images", "ls")}
    if not reference.startswith("sha256:"):
        return names.get(f"{host}/{path}:{reference}", "")
    by_digest = f"{host}/{path}@sha256:"
    known = (digest for name, digest in names.items() if name.startswith(by_digest))
    labels = {row[0]: row[-1] for row in ctr(cluster, "content", "ls")}
    labelled = f"{SOURCE}{host}=" in labels.get(reference, "")
    return reference if labelled and any(reference in parts(digest) for digest in known) else ""


def peers(cluster: Path, own: str) -> list[str]:
    """Return the addresses of the other nodes."""
    api = Socket(cluster / "api.sock", administrator(cluster))
    found = ask(api, "GET", "/api/v1/nodes")["items"]
    addresses = [node["status"]["addresses"][0]["address"] for node in found]
    return [address for address in addresses if address != own]


def from_peer(address: str, target: str) -> http.client.HTTPResponse | None:
    """Return the node's answer, if it offers what is asked for, else None."""
    with suppress(OSError, http.client.HTTPException):
        for port in (API_PORT, PEER_PORT):
            socket.create_connection((address, port), CONNECT_SECONDS).close()
        connection = http.client.HTTPConnection(address, PEER_PORT, timeout=ANSWER_SECONDS)
        connection.request("GET", target)
        answer = connection.getresponse()
        if answer.status == 200:
            return answer
        connection.close()
    return None


class Handler(BaseHTTPRequestHandler):
    """Answers the node's own containerd (if `of_this_node` is true) or another node."""

    protocol_version = "HTTP/1.1"
    cluster: Path
    own: str
    registries: list[str]
    of_this_node: bool

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, *, with_body: bool) -> None:
        asked = urlsplit(self.path)
        words = asked.path.strip("/").split("/")
        host = "".join(parse_qs(asked.query).get("ns", []))
        if host in self.registries and words[0] == "v2" and words[-2] in ("manifests", "blobs"):
            if not self.of_this_node:
                self.give(host, "/".join(words[1:-2]), words[-1], with_body=with_body)
                return
            for address in peers(self.cluster, self.own):
                if found := from_peer(address, self.path):
                    with found:
                        self.head(found.headers)
                        if with_body:
                            copyfileobj(found, self.wfile)
                    return
        self.head({"Content-Length": "0"}, 404)

    def give(self, host: str, path: str, reference: str, *, with_body: bool) -> None:
        digest = offered(self.cluster, host, path, reference)
        if not digest:
            self.head({"Content-Length": "0"}, 404)
            return
        size = blob(digest).stat().st_size
        kind = "application/octet-stream"
        if "/manifests/" in self.path:
            kind = json.loads(blob(digest).read_bytes())["mediaType"]
        fields = {"Content-Length": str(size), "Content-Type": kind}
        self.head({**fields, "Docker-Content-Digest": digest})
        if with_body:
            with blob(digest).open("rb") as content, SENT.open("a") as sent:
                copyfileobj(content, self.wfile)
                sent.write(f"{self.client_address[0]} {digest} {size}\n")

    def head(self, fields: "dict[str, str] | http.client.HTTPMessage", status: int = 200) -> None:
        self.send_response(status)
        for name in ("Content-Length", "Content-Type", "Docker-Content-Digest"):
            if name in fields:
                self.send_header(name, fields[name])
        self.end_headers()


def serve(address: str, port: int, cluster: Path, own: str, registries: list[str]) -> None:
    """Start to answer requests at an address, in a thread."""
    known = {"cluster": cluster, "own": own, "registries": registries}
    kind = type("Own", (Handler,), {**known, "of_this_node": port == LOCAL_PORT})
    server = ThreadingHTTPServer((address, port), kind)
    threading.Thread(target=server.serve_forever).start()


def main(folder: str, own: str, *registries: str) -> None:
    """Answer the node's own containerd and the other nodes, for ever."""
    cluster = Path(folder)
    serve("127.0.0.1", LOCAL_PORT, cluster, own, list(registries))
    serve(own, PEER_PORT, cluster, own, list(registries))
    with suppress(OSError):  # on a server, k3s itself already listens there
        listener = socket.create_server((own, API_PORT))
        while True:
            listener.accept()[0].close()


if __name__ == "__main__":
    main(*sys.argv[1:])

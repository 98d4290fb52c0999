"""Gives the first node's images to the other nodes, as a read-only registry.

`python3 -m sandbox.image_mirror FOLDER ADDRESS` runs on the first node of a cluster of several. The
other nodes' containerds ask it for every image that they lack, whatever registry its name says, as
k3s' nodes ask each other if its embedded registry is on. Before the mirror answers, it links what
the asking node lacks into that node's store (`image_links.py`), so that nothing is sent or unpacked
again. If linking fails, the node pulls the image as from any registry, which only takes longer.

https://github.com/opencontainers/distribution-spec/blob/v1.1.0/spec.md
"""

import sys
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copyfileobj
from urllib.parse import parse_qs, urlsplit

from sandbox.components import MIRROR_PORT
from sandbox.image_links import Store, link_image, read_json
from sandbox.layout import Layout
from sandbox.say import say

DEFAULT_TYPE = "application/vnd.oci.image.manifest.v1+json"


class Mirror:
    """The first node's store, and the other nodes' stores, which are found by their addresses."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.images = Store(layout.containerd_socket, layout.containerd_store)
        self._one_at_a_time = threading.Lock()

    def manifest(self, image: str, reference: str) -> str | None:
        """The digest of an image's manifest, or None; `reference` is a tag or a digest."""
        if reference.startswith("sha256:"):
            return reference if self.images.blob(reference).exists() else None
        return self.images.images().get(f"{image}:{reference}")

    def link_for(self, address: str, digest: str) -> None:
        """Link an image into the store of the node that asks from this address."""
        for layout in self.layout.further_nodes():
            if address_of(layout) == address:
                with self._one_at_a_time:
                    store = Store(layout.containerd_socket, layout.containerd_store)
                    link_image(self.images, store, digest)


def address_of(layout: Layout) -> str | None:
    """The address of a further node, as `up` has noted it; None if the node is not up."""
    file = layout.address_file
    return file.read_text() if file.exists() else None


@dataclass(frozen=True)
class Found:
    """A file that answers a request, and its media type."""

    path: Path
    kind: str
    digest: str


def find(mirror: Mirror, target: str, client: str) -> Found | None:
    """The file that answers a request of `client` for the path and query `target`, or None."""
    asked = urlsplit(target)
    words = asked.path.strip("/").split("/")
    if len(words) < 4 or words[0] != "v2" or words[-2] not in ("manifests", "blobs"):
        return None
    if words[-2] == "blobs":
        digest, kind = words[-1], "application/octet-stream"
    else:
        host = parse_qs(asked.query).get("ns", [])  # the registry in the image's name
        image = "/".join([*host, *words[1:-2]])
        named = mirror.manifest(image, words[-1])
        if named is None:
            return None
        try:
            mirror.link_for(client, named)
        except (OSError, RuntimeError) as reason:
            say(f"{image} is not linked, so it is sent and unpacked: {reason}")
        digest = named
        kind = read_json(mirror.images, digest).get("mediaType", DEFAULT_TYPE)
    path = mirror.images.blob(digest)
    return Found(path, kind, digest) if path.exists() else None


def handler(mirror: Mirror) -> type[BaseHTTPRequestHandler]:
    """The class that answers requests for this mirror."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, *, with_body: bool) -> None:
            found = find(mirror, self.path, self.client_address[0])
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", found.kind if found else "application/json")
            self.send_header("Content-Length", str(found.path.stat().st_size if found else 0))
            if found and found.digest:
                self.send_header("Docker-Content-Digest", found.digest)
            self.end_headers()
            if found and with_body:
                with found.path.open("rb") as blob:
                    copyfileobj(blob, self.wfile)

        def log_message(self, format: str, *args: object) -> None:
            say(f"{self.client_address[0]} {format % args}")

    return Handler


def main(root: str, address: str) -> None:
    """Serve until the process is killed."""
    folder = Path(root)
    mirror = Mirror(Layout(folder.name, folder.parent))
    ThreadingHTTPServer((address, MIRROR_PORT), handler(mirror)).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])

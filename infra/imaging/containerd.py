"""Talks to containerd through its `ctr`: what is there, import, names, removal."""

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from infra.imaging.oci import COPY_BYTES, Image, config_digest, image_at_node, write_archive

KUBERNETES_NAMESPACE = "k8s.io"  # the only one in which the kubelet looks
# Where containerd knows it (1.6.29, 1.7 and later), the kubelet's clean-up passes the image over.
PINNED_LABEL = "io.cri-containerd.pinned=pinned"


class ContainerdError(RuntimeError):
    """containerd cannot be asked, or refused; the text has its own words."""


@dataclass(frozen=True)
class Containerd:
    """How to reach containerd.

    Args:
        ctr: the command that runs ctr: `["ctr"]`, `["k3s", "ctr"]`, `["ssh", "node", "ctr"]`.
        address: containerd's socket where it is not ctr's default.
        namespace: containerd's, not Kubernetes'.
    """

    ctr: Sequence[str]
    address: str | None = None
    namespace: str = KUBERNETES_NAMESPACE

    def images(self, namespace: str | None = None) -> dict[str, str]:
        """`{name: manifest digest}` of all images of a namespace."""
        rows = self._ask("images", "ls", namespace=namespace).splitlines()[1:]
        return {row.split()[0]: row.split()[2] for row in rows}

    def namespaces(self) -> list[str]:
        """All namespaces of this containerd."""
        return self._ask("namespaces", "ls", "-q").split()

    def complete_image(self, name: str) -> Image | None:
        """The image of that name, if all of its blobs are there. Its layers stay at the node."""
        # REF TYPE DIGEST STATUS SIZE UNPACKED; the status is complete, incomplete or unavailable
        rows = self._ask("images", "check", f"name=={name}").splitlines()[1:]
        if not rows or rows[0].split()[3] != "complete":
            return None
        manifest = self._blob(rows[0].split()[2])
        return image_at_node(manifest, self._blob(config_digest(manifest)))

    def import_images(self, images: Mapping[str, Image]) -> int:
        """Import the blobs that are missing, name the images, pin them.

        Returns:
            Number of content bytes moved.

        Raises:
            ContainerdError: the import failed; ends with ctr's own words.
        """
        try:
            moved = self._import_missing(images)
        except ContainerdError as error:
            # What was listed can be collected as garbage before the import holds it: look again.
            if "not found" not in str(error):
                raise
            moved = self._import_missing(images)
        for name in images:
            self._ask("images", "label", name, PINNED_LABEL)
        return moved

    def remove_images(self, names: Sequence[str]) -> list[str]:
        """Remove these names where they are there, and what the kubelet's side calls by id.

        Returns:
            The names that were removed.
        """
        there = self.images()
        digests = {there[name] for name in names if name in there}
        # containerd's CRI plugin adds a name `sha256:<config digest>` for the same manifest,
        # which would keep the gigabytes.
        doomed = [
            name
            for name, digest in there.items()
            if name in names or (name.startswith("sha256:") and digest in digests)
        ]
        if doomed:
            self._ask("images", "rm", "--sync", *sorted(doomed))
        return doomed

    def _import_missing(self, images: Mapping[str, Image]) -> int:
        held = frozenset(self._ask("content", "ls", "-q").split())
        command = self._command("images", "import", "-")
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pipesize=COPY_BYTES,
            )
        except FileNotFoundError as error:
            raise self._no_program() from error
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            moved, broken = _feed(process.stdin, images, held)
            output = process.stdout.read().decode(errors="replace").strip()
        if process.returncode or broken:
            raise ContainerdError(f"{shlex.join(command)}: {output[-1500:] or broken}")
        return moved

    def _blob(self, digest: str) -> bytes:
        return self._ask("content", "get", digest).encode()

    def _ask(self, *arguments: str, namespace: str | None = None) -> str:
        command = self._command(*arguments, namespace=namespace)
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
        except FileNotFoundError as error:
            raise self._no_program() from error
        if done.returncode:
            raise ContainerdError(f"{shlex.join(command)}: {done.stderr.strip()[-1500:]}")
        return done.stdout

    def _command(self, *arguments: str, namespace: str | None = None) -> list[str]:
        address = ["--address", self.address] if self.address else []
        return [*self.ctr, *address, "--namespace", namespace or self.namespace, *arguments]

    def _no_program(self) -> ContainerdError:
        return ContainerdError(f"{self.ctr[0]!r} is not a program on this machine's PATH")


def misplaced(containerd: Containerd, reference: str) -> list[str]:
    """Places of the image where the kubelet does not look: a wrong name, a wrong namespace.

    Names are compared by their tag, which is a hash of the content.
    """
    tag = f":{reference.rpartition(':')[2]}"
    found = [
        f"the image is there as {name}, but pods ask for {reference}"
        for name in sorted(containerd.images())
        if name.endswith(tag) and name != reference
    ]
    for namespace in sorted(set(containerd.namespaces()) - {containerd.namespace}):
        found += [
            f"{name} is in containerd's namespace {namespace!r}, "
            f"but the kubelet looks only in {containerd.namespace!r}"
            for name in sorted(containerd.images(namespace))
            if name.endswith(tag)
        ]
    return found


def _feed(stream: IO[bytes], images: Mapping[str, Image], held: frozenset[str]) -> tuple[int, str]:
    """Write the archive. A pipe that broke is no news: the importer says why it ended."""
    try:
        moved = write_archive(stream, images, held)
        stream.close()
    except BrokenPipeError as error:
        return 0, str(error)
    return moved, ""

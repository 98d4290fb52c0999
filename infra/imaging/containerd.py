"""Talks to containerd through its `ctr`: what is there, import, names, removal."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from infra.imaging.oci import Image, write_archive

KUBERNETES_NAMESPACE = "k8s.io"  # the only one in which the kubelet looks
PINNED_LABEL = "io.cri-containerd.pinned=pinned"  # the kubelet's garbage collection passes it over


class ImportProblemError(RuntimeError):
    """containerd cannot be asked, or does not hold what it should; the text says which."""


@dataclass(frozen=True)
class Containerd:
    """How to reach containerd: `ctr`, `k3s ctr` or `ssh host sudo k3s ctr`, and its socket."""

    ctr: Sequence[str]
    address: str | None = None
    namespace: str = KUBERNETES_NAMESPACE

    def held_digests(self) -> frozenset[str]:
        """Digests of all content in the namespace."""
        return frozenset(self._ask("content", "ls", "-q").split())

    def images(self, namespace: str | None = None) -> dict[str, str]:
        """`{name: manifest digest}` of a namespace."""
        rows = self._ask("images", "ls", namespace=namespace).splitlines()[1:]
        return {row.split()[0]: row.split()[2] for row in rows}

    def namespaces(self) -> list[str]:
        """All namespaces of this containerd."""
        return self._ask("namespaces", "ls", "-q").split()

    def import_images(self, images: Mapping[str, Image]) -> int:
        """Import what is missing of the images; returns the content bytes that were moved."""
        held = self.held_digests()
        command = self._command("images", "import", "-")
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            moved, broken = _feed(process.stdin, images, held)
            output = process.stdout.read().decode(errors="replace")
        if process.returncode or broken:
            raise ImportProblemError(f"{' '.join(command)}: {output.strip()[-1500:] or broken}")
        for name in images:
            self._ask("images", "label", name, PINNED_LABEL)
        return moved

    def remove_images(self, names: Sequence[str]) -> None:
        """Remove these names, where they are there."""
        there = set(self.images())
        for name in names:
            if name in there:
                self._ask("images", "rm", name)

    def _ask(self, *arguments: str, namespace: str | None = None) -> str:
        command = self._command(*arguments, namespace=namespace)
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            raise ImportProblemError(f"ctr: {self.ctr[0]!r} is not a program here") from error
        if done.returncode:
            raise ImportProblemError(f"{' '.join(command)}: {done.stderr.strip()[-1500:]}")
        return done.stdout

    def _command(self, *arguments: str, namespace: str | None = None) -> list[str]:
        address = ["--address", self.address] if self.address else []
        return [*self.ctr, *address, "--namespace", namespace or self.namespace, *arguments]


def _feed(stream: IO[bytes], images: Mapping[str, Image], held: frozenset[str]) -> tuple[int, str]:
    """Write the archive; a pipe that broke is told by the importer's own words, not by ours."""
    try:
        moved = write_archive(stream, images, held)
        stream.close()
    except BrokenPipeError as error:
        return 0, str(error)
    return moved, ""


def find_problem(containerd: Containerd, name: str, digest: str) -> str | None:
    """Why the kubelet would not find image `name` with manifest `digest`; None: it would."""
    images = containerd.images()
    if images.get(name) == digest:
        return None
    if name in images:
        return f"{name} is there, but with digest {images[name]} instead of {digest}"
    others = sorted(other for other, held in images.items() if held == digest)
    if others:
        return f"the image is there under another name: {', '.join(others)} instead of {name}"
    for namespace in containerd.namespaces():
        if namespace != containerd.namespace and name in containerd.images(namespace):
            return (
                f"{name} is in containerd's namespace {namespace!r}; "
                f"the kubelet looks in {containerd.namespace!r} only"
            )
    return f"{name} is not in containerd"

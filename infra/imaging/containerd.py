"""Talks to containerd through its `ctr`: what is there, import, names, removal."""

import hashlib
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from infra.imaging.node import CUT_OFF, Node, NodeError, why
from infra.imaging.oci import (
    COPY_BYTES,
    Image,
    archive_size_bytes,
    config_digest,
    image_at_node,
    write_archive,
)
from infra.imaging.parts import PART_BYTES, joined, remove_parts, send_parts

KUBERNETES_NAMESPACE = "k8s.io"  # the only one in which the kubelet looks
# Where containerd knows it (1.6.29, 1.7 and later), the kubelet's clean-up passes the image over.
PINNED_LABEL = "io.cri-containerd.pinned=pinned"
WANTED_LABEL = "disttrain.dev/wanted-at"  # see presence.py

COLLECTED_PAUSES_SECONDS = (0, 1, 3)  # before containerd is asked again what it holds


class ContainerdError(RuntimeError):
    """containerd cannot be asked, or refused; the text has its own words."""


@dataclass(frozen=True)
class Containerd:
    """How to reach containerd.

    Args:
        ctr: the command that runs ctr: `["ctr"]`, `["k3s", "ctr"]`.
        address: containerd's socket where it is not ctr's default.
        namespace: containerd's, not Kubernetes'.
        node: where ctr runs, as root; None: here, as who we are.
        part_bytes: a remote node gets what is larger in compressed parts of this size.
        patience_seconds: for an answer to a question; None: for ever.
    """

    ctr: Sequence[str]
    address: str | None = None
    namespace: str = KUBERNETES_NAMESPACE
    node: Node | None = None
    part_bytes: int = PART_BYTES
    patience_seconds: float | None = None

    def images(self, namespace: str | None = None) -> dict[str, str]:
        """`{name: manifest digest}` of all images of a namespace."""
        rows = self._ask("images", "ls", namespace=namespace).splitlines()[1:]
        return {row.split()[0]: row.split()[2] for row in rows}

    def namespaces(self) -> list[str]:
        """All namespaces of this containerd."""
        return self._ask("namespaces", "ls", "-q").split()

    def wanted_at(self, name: str) -> str | None:
        """What `mark_wanted` left on the image of that name; None: it is not there as a whole.

        Empty for an image without a mark. One command, as over SSH each costs a round trip.
        """
        ctr, only = shlex.join(self.ctr_words()), shlex.quote(f"name=={name}")
        words = ["sh", "-c", f"{ctr} images check {only} && {ctr} images ls {only}"]
        output = self._run(self.node.as_root(words) if self.node else words, "images check")
        rows = [row for row in map(str.split, output.splitlines()) if row[:1] == [name]]
        # REF TYPE DIGEST STATUS ..., then REF ... LABELS, which are `key=value,...` or -
        if len(rows) != 2 or rows[0][3] != "complete":
            return None
        labels = (label.partition("=") for label in rows[1][-1].split(","))
        return next((value for key, _, value in labels if key == WANTED_LABEL), "")

    def mark_wanted(self, name: str, at: str) -> None:
        """Label the image of that name with the time of the `up` that missed it."""
        self._ask("images", "label", name, f"{WANTED_LABEL}={at}")

    def complete_image(self, name: str) -> Image | None:
        """The image of that name, if all of its blobs are there. Its layers stay at the node."""
        # REF TYPE DIGEST STATUS SIZE UNPACKED; the status is complete, incomplete or unavailable
        rows = self._ask("images", "check", f"name=={name}").splitlines()[1:]
        if not rows or rows[0].split()[3] != "complete":
            return None
        manifest = self._blob(rows[0].split()[2])
        return image_at_node(manifest, self._blob(config_digest(manifest)))

    def import_images(self, images: Mapping[str, Image], say: Callable[[str], None]) -> int:
        """Import the blobs that are missing, name the images, pin them.

        Args:
            images: `{full name: image}`.
            say: takes a line of progress.

        Returns:
            Number of content bytes moved.

        Raises:
            ContainerdError: the import failed; ends with ctr's own words.
        """
        for pause_seconds in COLLECTED_PAUSES_SECONDS:
            try:
                moved = self._import_missing(images, say)
                break
            except ContainerdError as error:
                # What was listed can be collected as garbage before the import holds it.
                if "not found" not in str(error):
                    raise
                time.sleep(pause_seconds)
        else:
            moved = self._import_missing(images, say)
        for name in images:
            self._ask("images", "label", name, PINNED_LABEL)
        return moved

    @contextmanager
    def content(self, digest: str) -> Iterator[IO[bytes]]:
        """A blob as a stream.

        Raises:
            ContainerdError: containerd does not give it.
        """
        process = subprocess.Popen(
            self._command("content", "get", digest),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdin.write(self._input)
            process.stdin.close()
            broken: Exception | None = None
            try:
                yield process.stdout
            except Exception as error:  # raised below, if not ctr's own words say more
                broken = error
            while process.stdout.read(COPY_BYTES):  # so that ctr can end
                pass
            reason = process.stderr.read().decode(errors="replace").strip()
        if process.returncode:
            raise ContainerdError(f"{self._shown('content get')}: {reason}") from broken
        if broken:
            raise broken

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

    def _import_missing(self, images: Mapping[str, Image], say: Callable[[str], None]) -> int:
        held = frozenset(self._ask("content", "ls", "-q").split())
        size_bytes = archive_size_bytes(images, held)
        if self.node and self.node.remote and size_bytes > self.part_bytes:
            self._import_in_parts(self.node, images, held, say)
        else:
            self._import_stream(images, held)
        return size_bytes

    def _import_stream(self, images: Mapping[str, Image], held: frozenset[str]) -> None:
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
            broken = _feed(process.stdin, self._input, images, held)
            output = process.stdout.read().decode(errors="replace").strip()
        if process.returncode or broken:
            raise ContainerdError(f"{self._shown('images import')}: {output[-1500:] or broken}")

    def _import_in_parts(
        self,
        node: Node,
        images: Mapping[str, Image],
        held: frozenset[str],
        say: Callable[[str], None],
    ) -> None:
        digests = [part.digest for image in images.values() for part in image.blobs]
        content = " ".join([*images, *(digest for digest in digests if digest not in held)])
        name = hashlib.sha256(content.encode()).hexdigest()[:32]
        try:
            folder = send_parts(
                node, name, lambda to: write_archive(to, images, held), say, self.part_bytes
            )
            ctr = shlex.join([*self.ctr_words(), "images", "import", "-"])
            command = node.as_root(["sh", "-c", f"{joined(folder)} | {ctr}"])
            done = subprocess.run(command, input=self._input, capture_output=True, check=False)
            if done.returncode != CUT_OFF:
                remove_parts(node, folder)  # refused ones as well: the next attempt starts afresh
        except NodeError as error:
            raise ContainerdError(str(error)) from error
        if done.returncode:
            raise ContainerdError(f"{self._shown('images import')}: {why(done)}")

    def _blob(self, digest: str) -> bytes:
        return self._ask("content", "get", digest).encode()

    def _ask(self, *arguments: str, namespace: str | None = None) -> str:
        return self._run(self._command(*arguments, namespace=namespace), " ".join(arguments))

    def _run(self, command: Sequence[str], what: str) -> str:
        limit = self.patience_seconds
        try:
            done = subprocess.run(
                command, input=self._input, capture_output=True, timeout=limit, check=False
            )
        except FileNotFoundError as error:
            raise self._no_program() from error
        except subprocess.TimeoutExpired as error:
            raise ContainerdError(f"{self._shown(what)}: no answer in {limit} s") from error
        if done.returncode:
            raise ContainerdError(f"{self._shown(what)}: {why(done)}")
        return done.stdout.decode()

    def _command(self, *arguments: str, namespace: str | None = None) -> list[str]:
        words = [*self.ctr_words(namespace), *arguments]
        return self.node.as_root(words) if self.node else words

    def ctr_words(self, namespace: str | None = None) -> list[str]:
        """The command, its socket and its namespace."""
        address = ["--address", self.address] if self.address else []
        return [*self.ctr, *address, "--namespace", namespace or self.namespace]

    @property
    def _input(self) -> bytes:
        """What goes ahead of every command's input."""
        return self.node.root_input if self.node else b""

    def _shown(self, what: str) -> str:
        """A command for an error: what runs where, without the shell text around it."""
        where = f"on {self.node.shell[-1]}: " if self.node and self.node.remote else ""
        return f"{where}{shlex.join(self.ctr_words())} {what}"

    def _no_program(self) -> ContainerdError:
        program = self.node.shell[0] if self.node else self.ctr[0]
        return ContainerdError(f"{program!r} is not a program on this machine's PATH")


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


def _feed(stream: IO[bytes], head: bytes, images: Mapping[str, Image], held: frozenset[str]) -> str:
    """Write the archive. A pipe that broke is no news: the importer says why it ended."""
    try:
        stream.write(head)
        write_archive(stream, images, held)
        stream.close()
    except BrokenPipeError as error:
        return str(error)
    return ""

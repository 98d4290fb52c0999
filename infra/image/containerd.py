"""Runs `ctr` to list, label and remove the images of a containerd.

infra/image/transfer.py imports images into it.
"""

import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from infra.image.node import BEGIN_LINE, Node, after_begin_line, failure_reason
from infra.image.oci import COPY_BYTES, Image, config_digest, image_at_node
from infra.image.parts import PART_BYTES
from infra.image.platforms import platform_of_plugins

KUBERNETES_NAMESPACE = "k8s.io"  # the only namespace in which the kubelet looks
POD_NAMESPACE_LABEL = "io.kubernetes.pod.namespace"  # set by the kubelet
REQUEST_LABEL = "disttrain.dev/import-request"  # see presence.py


class ContainerdError(RuntimeError):
    """containerd cannot be reached, or refused a request. The text holds its own message."""


@dataclass(frozen=True)
class Containerd:
    """How to reach containerd.

    Args:
        ctr: the command that runs ctr: `["ctr"]`, `["k3s", "ctr"]`.
        address: containerd's socket; None: ctr's default.
        namespace: a namespace of containerd, not of Kubernetes.
        node: the machine on which ctr runs as root; None: ctr runs on this machine as the current
            user.
        part_bytes: archives that are larger than this are sent to a remote node in compressed
            parts of this size.
        patience_seconds: longest time of one command; None: no limit.
    """

    ctr: Sequence[str]
    address: str | None = None
    namespace: str = KUBERNETES_NAMESPACE
    node: Node | None = None
    part_bytes: int = PART_BYTES
    patience_seconds: float | None = None

    def images(self, namespace: str | None = None) -> dict[str, str]:
        """Return `{name: manifest digest}` of all images of a namespace."""
        rows = self.ask("images", "ls", namespace=namespace).splitlines()[1:]
        return {row.split()[0]: row.split()[2] for row in rows}

    def namespaces(self) -> list[str]:
        """Return all namespaces of this containerd."""
        return self.ask("namespaces", "ls", "-q").split()

    def labels(self) -> dict[str, dict[str, str]]:
        """Return `{name: labels}` of all images."""
        # The columns are REF TYPE DIGEST SIZE UNIT PLATFORMS LABELS. The labels are `key=value,...`
        # or `-`.
        rows = map(str.split, self.ask("images", "ls").splitlines()[1:])
        return {row[0]: _labels(row[-1]) for row in rows}

    def container_images(self, outside: str | None = None) -> frozenset[str]:
        """Return the names of the images of all containers, including containers that have ended.

        Args:
            outside: only count containers of pods in other Kubernetes namespaces than this one;
                None: count all containers.
        """
        pods = f'labels."{POD_NAMESPACE_LABEL}"'
        only = [] if outside is None else [f"{pods},{pods}!={outside}"]
        rows = map(str.split, self.ask("containers", "ls", *only).splitlines()[1:])
        return frozenset(row[1] for row in rows if len(row) > 1)

    def platform(self) -> str | None:
        """Return the platform that the node runs, such as `linux/amd64`; None if it is unknown."""
        return platform_of_plugins(self.ask("plugins", "ls"))

    def import_request(self, name: str) -> str | None:
        """Return the label REQUEST_LABEL of the image with this name.

        Only one command is run, because over SSH each command costs a round trip.

        Returns:
            The label's value; empty if the image has no such label; None if the image is missing
            or lacks some of its blobs.
        """
        ctr, only = shlex.join(self.ctr_words()), shlex.quote(f"name=={name}")
        output = self.shell(f"{ctr} images check {only} && {ctr} images ls {only}", "images check")
        rows = [row for row in map(str.split, output.splitlines()) if row[:1] == [name]]
        # The first row is REF TYPE DIGEST STATUS ..., and the second one is as in `labels`.
        if len(rows) != 2 or rows[0][3] != "complete":
            return None
        return _labels(rows[1][-1]).get(REQUEST_LABEL, "")

    def set_labels(self, name: str, labels: Mapping[str, str]) -> None:
        """Set labels of the image with this name. Its other labels stay."""
        words = [f"{key}={value}" for key, value in labels.items()]
        self.ask("images", "label", name, *words)

    def complete_image(self, name: str) -> Image | None:
        """Return the image with this name; None if it is missing or lacks some of its blobs.

        The content of its layers is not read.
        """
        # The columns are REF TYPE DIGEST STATUS SIZE UNPACKED. The status is complete, incomplete
        # or unavailable.
        rows = self.ask("images", "check", f"name=={name}").splitlines()[1:]
        if not rows or rows[0].split()[3] != "complete":
            return None
        manifest = self._blob(rows[0].split()[2])
        return image_at_node(manifest, self._blob(config_digest(manifest)))

    @contextmanager
    def content(self, digest: str) -> Iterator[IO[bytes]]:
        """Give the content of a blob as a stream.

        Raises:
            ContainerdError: ctr failed, for example because containerd does not have the blob.
        """
        process = subprocess.Popen(
            self.command("content", "get", digest),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdin.write(self.input_head)
            process.stdin.close()
            if self.node:
                _read_to_begin_line(process.stdout)
            broken: Exception | None = None
            try:
                yield process.stdout
            except Exception as error:  # It is raised below, unless ctr itself reports an error.
                broken = error
            while process.stdout.read(COPY_BYTES):  # Read the rest, so that ctr can end.
                pass
            reason = process.stderr.read().decode(errors="replace").strip()
        if process.returncode:
            raise ContainerdError(f"{self.shown('content get')}: {reason}") from broken
        if broken:
            raise broken

    def remove_images(self, names: Sequence[str]) -> list[str]:
        """Remove the images with these names, and the bytes that no other name refers to.

        Returns:
            The names that were removed, without those that did not exist.
        """
        there = self.images()
        digests = {there[name] for name in names if name in there}
        # containerd's CRI plugin adds a name `sha256:<config digest>` for the same manifest, which
        # would keep the gigabytes. It is removed too, unless the image has a further name.
        digests -= {
            digest
            for name, digest in there.items()
            if name not in names and not name.startswith("sha256:")
        }
        to_remove = [
            name
            for name, digest in there.items()
            if name in names or (name.startswith("sha256:") and digest in digests)
        ]
        if to_remove:
            self.ask("images", "rm", "--sync", *sorted(to_remove))
        return to_remove

    def _blob(self, digest: str) -> bytes:
        return self.ask("content", "get", digest).encode()

    def ask(self, *arguments: str, namespace: str | None = None) -> str:
        """Run ctr with these arguments, and return its output.

        Raises:
            ContainerdError: ctr failed, or did not end in time. The text holds ctr's message.
        """
        return self._run(self.command(*arguments, namespace=namespace), " ".join(arguments))

    def shell(self, text: str, what: str) -> str:
        """Run a shell text of several ctr commands, and return its output.

        Over SSH they cost one round trip together.

        Args:
            text: the shell text.
            what: the command that an error names.

        Raises:
            ContainerdError: as for `ask`.
        """
        words = ["sh", "-c", text]
        return self._run(self.node.as_root(words) if self.node else words, what)

    def _run(self, command: Sequence[str], what: str) -> str:
        limit = self.patience_seconds
        try:
            done = subprocess.run(
                command, input=self.input_head, capture_output=True, timeout=limit, check=False
            )
        except FileNotFoundError as error:
            raise self.no_program() from error
        except subprocess.TimeoutExpired as error:
            raise ContainerdError(f"{self.shown(what)}: no answer in {limit} s") from error
        if done.returncode:
            raise ContainerdError(f"{self.shown(what)}: {failure_reason(done)}")
        return after_begin_line(done.stdout).decode()

    def command(self, *arguments: str, namespace: str | None = None) -> list[str]:
        """Return the words that run ctr. Their input must begin with `input_head`."""
        words = [*self.ctr_words(namespace), *arguments]
        return self.node.as_root(words) if self.node else words

    def ctr_words(self, namespace: str | None = None) -> list[str]:
        """Return the words that run ctr, with the socket and the namespace."""
        address = ["--address", self.address] if self.address else []
        return [*self.ctr, *address, "--namespace", namespace or self.namespace]

    @property
    def location(self) -> str:
        """A text that differs from that of every containerd of another machine."""
        return " ".join([self.node.name if self.node else "", *self.ctr_words()])

    @property
    def input_head(self) -> bytes:
        """The start of every command's input: a line with sudo's password, if sudo asks for one."""
        return self.node.root_input if self.node else b""

    def shown(self, what: str) -> str:
        """Return a command for an error: what ran where, without the shell text around it."""
        where = f"on {self.node.shell[-1]}: " if self.node and self.node.remote else ""
        return f"{where}{shlex.join(self.ctr_words())} {what}"

    def no_program(self) -> ContainerdError:
        """Return the error for a program that is not installed on this machine."""
        program = self.node.shell[0] if self.node else self.ctr[0]
        return ContainerdError(f"{program!r} is not a program on this machine's PATH")


def _read_to_begin_line(output: IO[bytes]) -> None:
    begin_line = f"{BEGIN_LINE}\n".encode()
    while (line := output.readline()) and not line.endswith(begin_line):
        pass


def _labels(column: str) -> dict[str, str]:
    """Parse labels as `ctr images ls` shows them: `key=value,...`, or `-` for none."""
    pairs = (label.partition("=") for label in column.split(",") if "=" in label)
    return {key: value for key, _, value in pairs}

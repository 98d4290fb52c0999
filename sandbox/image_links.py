"""Copies an image between the stores of two running containerds by hard links.

containerd never changes a file of a complete blob or of a committed layer: overlayfs copies a file
before a container changes it, and a blob is renamed into its place when it is complete. So these
files may be hard links, which cost neither time to unpack nor disk space. Each containerd's records
of blobs and layers are made by containerd itself: it takes them in by its own commands. The pull
that follows finds all of them there.
"""

import json
import os
import re
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, cast

from sandbox.components import host_program

BLOBS = "io.containerd.content.v1.content/blobs/sha256"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Store:
    """A running containerd: its socket and its root folder."""

    socket: Path
    root: Path

    def blob(self, digest: str) -> Path:
        """The path of a blob. A text that is no digest gives a path at which no blob can be."""
        name = digest.removeprefix("sha256:") if DIGEST.fullmatch(digest) else "no-digest"
        return self.root / BLOBS / name

    def images(self) -> dict[str, str]:
        """The digest of each image's manifest, by the image's name."""
        rows = [row.split() for row in self.ctr("images", "list").splitlines()[1:]]
        return {row[0]: row[2] for row in rows}

    def ctr(self, *arguments: str, stdin: IO[bytes] | None = None) -> str:
        """Output of ctr. Raises RuntimeError with ctr's error text if it fails."""
        done = self._run(*arguments, stdin=stdin)
        if done.returncode:
            raise RuntimeError(f"ctr {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def has_layers(self, chain: str) -> bool:
        """Whether this layer and all layers below it are unpacked."""
        return self._run("snapshots", "info", chain).returncode == 0

    def _run(
        self, *arguments: str, stdin: IO[bytes] | None = None
    ) -> subprocess.CompletedProcess[str]:
        head = [str(host_program("ctr")), "--address", str(self.socket), "--namespace", "k8s.io"]
        return subprocess.run(
            [*head, *arguments],
            stdin=stdin or subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )


def link_image(source: Store, target: Store, digest: str) -> None:
    """Give `target` the unpacked layers and the blobs of an image that `source` has unpacked.

    Args:
        source: the store that has the image.
        target: the store that gets it, on the same file system.
        digest: the digest of the image's manifest.

    Raises:
        RuntimeError: containerd refuses a step. What was linked until then is valid, and stays.
        OSError: a file cannot be linked.
    """
    manifest = read_json(source, digest)
    if "config" not in manifest:
        raise RuntimeError(f"{digest} is an index of several images")
    # The blobs come first, because a pull leaves out the blobs of layers that are unpacked.
    for part in manifest["layers"]:
        link_blob(source, target, part["digest"])
    config = read_json(source, manifest["config"]["digest"])
    chains = chain_ids(config["rootfs"]["diff_ids"])
    if chains and not target.has_layers(chains[-1]):
        folders = layer_folders(source, chains[-1])
        if len(folders) != len(chains):
            raise RuntimeError(f"{digest} has {len(chains)} layers, unpacked {len(folders)}")
        for number, (chain, folder) in enumerate(zip(chains, folders, strict=True)):
            if not target.has_layers(chain):
                link_layer(target, folder, chain, chains[number - 1] if number else "")


def link_blob(source: Store, target: Store, digest: str) -> None:
    """Give `target` a blob: link its file, and let containerd take it in."""
    here, there = source.blob(digest), target.blob(digest)
    if not there.exists():
        there.parent.mkdir(parents=True, exist_ok=True)
        os.link(here, there)
    expected = ("--expected-digest", digest, "--expected-size", str(here.stat().st_size))
    with here.open("rb") as blob:
        target.ctr("content", "ingest", *expected, f"sandbox-link-{digest}", stdin=blob)
    # No image refers to the blob yet, and containerd's garbage collection removes such blobs.
    target.ctr("content", "label", digest, "containerd.io/gc.root=linked")


def chain_ids(diff_ids: Sequence[str]) -> list[str]:
    """Names of the snapshots (chain IDs), from the lowest layer to the highest.

    https://github.com/opencontainers/image-spec/blob/v1.1.0/config.md#layer-chainid
    """
    chains: list[str] = []
    for diff in diff_ids:
        text = f"{chains[-1]} {diff}" if chains else ""
        chains.append(f"sha256:{sha256(text.encode()).hexdigest()}" if text else diff)
    return chains


def layer_folders(store: Store, chain: str) -> list[Path]:
    """The folders with the files of each layer, from the lowest layer to the highest."""
    key = f"sandbox-link-{uuid.uuid4().hex}"
    mounts = json.loads(store.ctr("snapshots", "view", "--mounts", key, chain))
    try:
        store.ctr("snapshots", "remove", key)
    except RuntimeError as refused:
        # Nothing refers to the view, so containerd's garbage collection may have removed it.
        if "does not exist" not in str(refused):
            raise
    (mount,) = mounts
    if mount["Type"] == "bind":  # a single layer
        return [Path(mount["Source"])]
    lower = next(o for o in mount["Options"] if o.startswith("lowerdir="))
    return [Path(folder) for folder in reversed(lower.removeprefix("lowerdir=").split(":"))]


def link_layer(target: Store, files: Path, chain: str, parent: str) -> None:
    """Commit a layer with these files under the name `chain`."""
    key = f"sandbox-link-{uuid.uuid4().hex}"
    made = target.ctr("snapshots", "prepare", "--mounts", key, *([parent] if parent else []))
    try:
        (mount,) = json.loads(made)
        # `cp` also sets the attributes of the layer's top folder, which belong to the layer.
        copy = ["cp", "--archive", "--link", f"{files}/.", str(upper_folder(mount))]
        done = subprocess.run(copy, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(copy)}: {done.stderr.strip()}")
        target.ctr("snapshots", "commit", chain, key)
    except BaseException:
        target.ctr("snapshots", "remove", key)
        raise


def upper_folder(mount: dict[str, Any]) -> Path:
    """The folder into which a prepared snapshot writes."""
    if mount["Type"] == "bind":
        return Path(mount["Source"])
    upper = next(o for o in mount["Options"] if o.startswith("upperdir="))
    return Path(upper.removeprefix("upperdir="))


def read_json(store: Store, digest: str) -> dict[str, Any]:
    """The content of a blob that holds JSON."""
    return cast(dict[str, Any], json.loads(store.blob(digest).read_bytes()))

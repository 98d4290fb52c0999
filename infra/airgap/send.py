"""Sends files of a bundle to the node, in parts that stay there if the connection breaks."""

import hashlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from infra.airgap.manifest import Entry
from infra.image.node import Node, NodeError
from infra.image.parts import (
    PART_BYTES,
    Say,
    joined,
    open_transfer,
    remove_parts,
    send_parts,
)

BLOCK_BYTES = 1 << 20
# Arguments: the folder, then `sha256 name` for each file. It prints the names of files to be sent.
_COMPARE = """\
folder=$1; shift
while [ $# -gt 0 ]; do
  sum=$(sha256sum "$folder/$2" 2>/dev/null | cut -d ' ' -f 1)
  [ "$sum" = "$1" ] || echo "$2"
  shift 2
done"""
# Arguments: the file, its sha256, and a command that prints its content.
_PUT_IN_PLACE = """\
set -e; umask 077; mkdir -p "${1%/*}"; trap 'rm -f "$1.partial"' EXIT
sh -c "$3" >"$1.partial"
sum=$(sha256sum "$1.partial" | cut -d ' ' -f 1)
[ "$sum" = "$2" ] || { echo "$1: sha256 is $sum, not $2" >&2; exit 1; }
sync "$1.partial"; mv "$1.partial" "$1\""""
# Arguments: the folder, then the names of the files that stay.
_REMOVE_OTHERS = """\
set -e; cd "$1"; shift
find . -type f | while read -r file; do
  keep=; for name in "$@"; do [ "./$name" != "$file" ] || keep=yes; done
  [ -n "$keep" ] || rm -f "$file"
done"""


def send(
    node: Node,
    bundle: Path,
    entries: Sequence[Entry],
    folder: str,
    say: Say,
    part_bytes: int = PART_BYTES,
) -> None:
    """Make a folder of root on the node hold exactly these files.

    Args:
        node: the machine that gets the files.
        bundle: folder of the bundle on this machine.
        entries: the files.
        folder: the folder on the node. Files in it that are not among `entries` are removed.
        say: takes a line of progress.
        part_bytes: size of the parts in which a file is sent.

    Raises:
        NodeError: the connection broke, the node's disk is full, or a file differs from its
            checksum. Parts that have arrived stay, so that the next attempt continues.
    """
    words = [word for entry in entries for word in (entry.sha256, entry.name)]
    wanted = _as_root(node, _COMPARE, folder, *words).split()
    for entry in entries:
        if entry.name in wanted:
            say(f"{entry.name}: {entry.size_bytes / 1e6:,.1f} MB to send")
            _send_file(node, bundle, entry, folder, say, part_bytes)
    _as_root(node, _REMOVE_OTHERS, folder, *(entry.name for entry in entries))
    say(f"{len(entries)} files are on the node; {len(entries) - len(wanted)} were there before")


def _send_file(
    node: Node, bundle: Path, entry: Entry, folder: str, say: Say, part_bytes: int
) -> None:
    digest = hashlib.sha256()

    def write(stream: IO[bytes]) -> None:
        with (bundle / entry.name).open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
                stream.write(block)

    def say_short(text: str) -> None:
        say(text.partition(": ")[2])  # Remove `image: `, with which the texts of parts.py begin.

    transfer = open_transfer(node, entry.sha256[:32])
    send_parts(node, transfer, write, say_short, part_bytes)
    parts = transfer.folder
    if digest.hexdigest() != entry.sha256:
        remove_parts(node, parts)
        raise NodeError(f"{entry.name}: sha256 is {digest.hexdigest()}, not {entry.sha256}")
    target = str(PurePosixPath(folder) / entry.name)
    _as_root(node, _PUT_IN_PLACE, target, entry.sha256, joined(parts))
    remove_parts(node, parts)


def _as_root(node: Node, script: str, *words: str) -> str:
    """Run a script with these arguments as root on the node, and return its output."""
    return node.run_as_root(["sh", "-c", script, "sh", *words])

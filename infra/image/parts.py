"""Sends a long stream to another machine in compressed parts.

If the connection breaks, only one part is lost. A part is named after its place in the stream and
its content, so that the next attempt only sends the missing parts. The parts are gzip members: when
they are joined, they are one gzip file of the whole stream.

`open_transfer` comes before `send_parts`, and leaves a note at the node. With the note, a stream
whose content depends on what the node holds can be made again exactly as in the first attempt.
"""

import gzip
import hashlib
import os
import shlex
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, cast

from infra.command_line import Say
from infra.image.node import Node, NodeError

PART_BYTES = 64 << 20
LEVEL = 1  # makes 3.4 GB of 5.8 GB; higher levels save a tenth more and take minutes longer
# The most parts that are compressed at the same time. Four cores compress faster than a line of
# 1 Gbit/s sends, and each part that waits takes memory of its own size.
MOST_AT_ONCE = 4
BASE = "/var/tmp/disttrain-import"  # It survives a reboot. The user's number is added to it.
KEEP_MINUTES = 24 * 60  # The parts of an abandoned transfer are removed after this time.

# The arguments are the folder for all transfers (to which the user's number is added), the name of
# this transfer, and KEEP_MINUTES. The input is the note, which is written unless there is one
# already. The script prints the transfer's folder, the note in it, and the names of the parts.
# Everybody can make folders in /var/tmp, and root imports the content of the parts. So the folder
# is refused if it belongs to another user or is a link.
_OPEN = r"""
umask 077
base=$1-$(id -u)
mkdir -m 700 "$base" 2>/dev/null
if [ "$(find "$base" -maxdepth 0 -type d -user "$(id -u)" -perm 700 2>/dev/null)" != "$base" ]; then
  echo "$base: is not a folder that only $(id -un) can use: $(ls -ld "$base" 2>&1)." \
    "Look at who made it, then remove it." >&2
  exit 1
fi
cd "$base" && mkdir -p "$2" || exit 1
find . -mindepth 1 -maxdepth 1 -mmin "+$3" ! -name "$2" -exec rm -rf {} +
cd "$2" || exit 1
[ -e .note ] || { cat >.note.new && mv .note.new .note; } || exit 1
pwd -P && cat .note && ls
"""

Write = Callable[[IO[bytes]], None]


@dataclass(frozen=True)
class Transfer:
    """A transfer that has begun, perhaps in an earlier attempt.

    Args:
        folder: the folder on the node that holds the parts.
        note: the note that the attempt which made the folder has left in it.
        there: names of the parts that have arrived.
    """

    folder: str
    note: str
    there: frozenset[str]


def open_transfer(node: Node, name: str, note: str = "") -> Transfer:
    """Begin a transfer, or find the one that an earlier attempt began.

    Args:
        node: the machine that gets the stream.
        name: name of the transfer's folder, the same in each attempt.
        note: a line that is left in the folder for later attempts, if this attempt makes it.

    Raises:
        NodeError: the connection broke, or the folder for parts belongs to another user.
    """
    assert name.isalnum()
    words = shlex.join(["sh", "-c", _OPEN, "sh", BASE, name, str(KEEP_MINUTES)])
    folder, kept, *there = node.run(words, f"{note}\n".encode()).splitlines()
    return Transfer(folder, kept, frozenset(there))


def send_parts(
    node: Node, transfer: Transfer, write: Write, say: Say, part_bytes: int = PART_BYTES
) -> None:
    """Send the stream that `write` writes to the node, as parts in the transfer's folder.

    Args:
        node: the machine that gets the parts.
        transfer: the result of `open_transfer`. Parts that it already has are not sent.
        write: writes the stream. It must write the same bytes in each attempt.
        say: takes a line of progress.
        part_bytes: size of a part before it is compressed.

    Raises:
        NodeError: the connection broke, or the node's disk is full. The parts stay there.
    """
    with ThreadPoolExecutor(at_once()) as threads:
        parts = _Sender(node, transfer, threads, say, part_bytes)
        write(cast(IO[bytes], parts))
        parts.finish()
    parts.remove_others()


def at_once() -> int:
    """Return the number of parts that are compressed, and held in memory, at the same time."""
    return min(os.cpu_count() or 1, MOST_AT_ONCE)


def joined(folder: str) -> str:
    """Return shell text that writes the whole stream from a folder of parts."""
    return f"cat {shlex.quote(folder)}/* | gzip -dc"


def remove_parts(node: Node, folder: str) -> None:
    """Remove the folder of a transfer that has ended."""
    quoted = shlex.quote(folder)
    node.run(f'rm -rf {quoted}; rmdir "$(dirname {quoted})" 2>/dev/null || true')


class _Sender:
    """A stream that cuts what is written to it into parts, and sends them in order."""

    def __init__(
        self,
        node: Node,
        transfer: Transfer,
        threads: ThreadPoolExecutor,
        say: Say,
        part_bytes: int,
    ) -> None:
        self._node, self._folder, self._there = node, transfer.folder, transfer.there
        self._threads, self._say, self._part_bytes = threads, say, part_bytes
        self._buffer = bytearray()
        self._names: list[str] = []
        self._queue: deque[tuple[str, Future[bytes]]] = deque()
        self._sent_bytes = self._kept_parts = 0

    def write(self, content: bytes) -> int:
        self._buffer += content
        while len(self._buffer) >= self._part_bytes:
            self._cut(self._part_bytes)
        return len(content)

    def finish(self) -> None:
        if self._buffer:
            self._cut(len(self._buffer))
        while self._queue:
            self._send_oldest()
        self._say(
            f"image: {self._sent_bytes / 1e6:,.1f} MB sent in {len(self._names)} parts, "
            f"{self._kept_parts} of them were there from an earlier attempt"
        )

    def remove_others(self) -> None:
        """Remove parts of another stream with the same name, and parts that were cut off."""
        others = self._there - frozenset(self._names)
        if others:
            names = " ".join(shlex.quote(name) for name in sorted(others))
            self._node.run(f"cd {shlex.quote(self._folder)} && rm -f {names}")

    def _cut(self, size: int) -> None:
        raw = bytes(self._buffer[:size])
        del self._buffer[:size]
        name = f"{len(self._names):05d}-{hashlib.sha256(raw).hexdigest()[:32]}"
        self._names.append(name)
        if name in self._there:
            self._kept_parts += 1
            return
        self._queue.append((name, self._threads.submit(gzip.compress, raw, LEVEL, mtime=0)))
        if len(self._queue) > at_once():
            self._send_oldest()

    def _send_oldest(self) -> None:
        name, future = self._queue.popleft()
        content = future.result()
        # The node cannot tell a connection that breaks from the end of the input. So the size of
        # the part is compared before the part gets its final name.
        try:
            self._node.run(
                f"umask 077; cd {shlex.quote(self._folder)} && cat > {name}.cut && "
                f'[ "$(wc -c < {name}.cut)" -eq {len(content)} ] && mv {name}.cut {name}',
                content,
            )
        except NodeError as error:
            if "No space left" not in str(error):
                raise
            raise NodeError(
                f"{error}: the disk of {self._folder} on the node has no room for what is sent, "
                "which is there as a whole until the end (3.4 GB for the trainer's image). Free "
                "some space, or mount a larger disk at /var/tmp"
            ) from None
        self._sent_bytes += len(content)
        if len(self._names) % 8 == 0:
            self._say(f"image: {self._sent_bytes / 1e6:,.0f} MB sent so far")

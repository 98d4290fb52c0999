"""Moves a long stream to another machine in compressed parts: a cut connection costs one part.

A part is named after its place and its content, so that the next attempt sends what is missing.
The parts are gzip members: one after the other they are one gzip file of the whole stream.
"""

import gzip
import hashlib
import os
import shlex
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, cast

from infra.imaging.node import Node

PART_BYTES = 64 << 20
LEVEL = 1  # 5.8 GB become 3.4; higher levels take minutes for the last tenth
BASE = "/var/tmp/disttrain-import"  # survives a reboot; with the uid, as it is the user's own
KEEP_MINUTES = 24 * 60  # of transfers that nobody goes on with

Write = Callable[[IO[bytes]], None]
Say = Callable[[str], None]


def send_parts(node: Node, name: str, write: Write, say: Say, part_bytes: int = PART_BYTES) -> str:
    """Bring what `write` writes to the node, as parts in a folder of their own.

    Args:
        name: of the folder; the same stream has the same name in each attempt.
        write: writes the stream, the same bytes each time.
        say: takes a line of progress.

    Returns:
        The folder on the node.

    Raises:
        NodeError: the connection broke, or the disk there is full. The parts stay.
    """
    assert name.isalnum()
    folder, *there = node.run(
        f'umask 077; base={BASE}-$(id -u); mkdir -p "$base/{name}" && cd "$base" && '
        f"find . -mindepth 1 -maxdepth 1 -mmin +{KEEP_MINUTES} ! -name {name} -exec rm -rf {{}} + "
        f"&& cd {name} && pwd && ls"
    ).splitlines()
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        parts = _Sender(node, folder, frozenset(there), threads, say, part_bytes)
        write(cast(IO[bytes], parts))
        parts.finish()
    parts.remove_others()
    return folder


def joined(folder: str) -> str:
    """Shell text that writes the whole stream of a folder of parts."""
    return f"cat {shlex.quote(folder)}/* | gzip -dc"


def remove_parts(node: Node, folder: str) -> None:
    """Remove the folder of a transfer that is over."""
    quoted = shlex.quote(folder)
    node.run(f'rm -rf {quoted}; rmdir "$(dirname {quoted})" 2>/dev/null || true')


class _Sender:
    """A stream that cuts what is written to it into parts and sends them, in order."""

    def __init__(
        self,
        node: Node,
        folder: str,
        there: frozenset[str],
        threads: ThreadPoolExecutor,
        say: Say,
        part_bytes: int,
    ) -> None:
        self._node, self._folder, self._there = node, folder, there
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
        """Parts of another stream under the same name, and the cut-off ones."""
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
        if len(self._queue) > (os.cpu_count() or 1):
            self._send_oldest()

    def _send_oldest(self) -> None:
        name, future = self._queue.popleft()
        content = future.result()
        # the other side sees the end of a cut-off connection as the end of the file
        self._node.run(
            f"umask 077; cd {shlex.quote(self._folder)} && cat > {name}.cut && "
            f'[ "$(wc -c < {name}.cut)" -eq {len(content)} ] && mv {name}.cut {name}',
            content,
        )
        self._sent_bytes += len(content)
        if len(self._names) % 8 == 0:
            self._say(f"image: {self._sent_bytes / 1e6:,.0f} MB sent so far")

"""A file that has not arrived completely yet: its bytes, and how many of each range have arrived.

    NAME.partial-<first 12 digits of its sha256>            the bytes, each at its final offset
    NAME.partial-<first 12 digits of its sha256>.arrived    8 bytes for each range: its byte count

Several streams write at once, each into its own range, and from the range's beginning on. A count
is written after the bytes that it counts. So whatever ends this program, all bytes that are counted
are in the file. (After a power cut this may be false; the sha256 at the end shows it.)
"""

import hashlib
import os
import threading
from pathlib import Path

RANGE_BYTES = 64 << 20
_COUNT_BYTES = 8
HASH_BLOCK_BYTES = 4 << 20
PARTIAL = ".partial-"


class PartialFile:
    """A file that is being transferred.

    Args:
        target: the final path of the file.
        size: the size of the file, in bytes.
        sha256: the sha256 that the content must have, in hex digits.
    """

    def __init__(self, target: Path, size: int, sha256: str) -> None:
        self.target, self.size, self.sha256 = target, size, sha256
        self.path = target.with_name(f"{target.name}{PARTIAL}{sha256[:12]}")
        self._arrived_path = self.path.with_name(f"{self.path.name}.arrived")
        self.is_checked = False
        """Whether a thread already finishes this file, so that no other thread does it too."""
        self._lock = threading.Lock()
        self._files: tuple[int, int] | None = None
        wholes = [min(RANGE_BYTES, size - begin) for begin in range(0, size, RANGE_BYTES)]
        self._arrived = [0] * len(wholes)
        if self.path.exists():
            self._arrived = _read_counts(self._arrived_path, wholes)

    @property
    def arrived_bytes(self) -> int:
        """How many bytes have arrived."""
        return sum(self._arrived)

    def missing(self, number: int) -> tuple[int, int]:
        """The offset and the count of the bytes that range `number` lacks."""
        begin = number * RANGE_BYTES
        whole = min(RANGE_BYTES, self.size - begin)
        return begin + self._arrived[number], whole - self._arrived[number]

    def ranges(self) -> list[int]:
        """The numbers of the ranges that lack bytes."""
        return [number for number in range(len(self._arrived)) if self.missing(number)[1]]

    def write(self, number: int, block: memoryview) -> None:
        """Write the next bytes of range `number`.

        Raises OSError if they cannot be written, for instance because no space is left.
        """
        data, counts = self._open()
        while block:
            written = os.pwrite(data, block, self.missing(number)[0])
            self._arrived[number] += written
            block = block[written:]
        count = self._arrived[number].to_bytes(_COUNT_BYTES, "little")
        os.pwrite(counts, count, number * _COUNT_BYTES)

    def finish(self) -> str:
        """Give the file its final name if its content is right; return the sha256 of the content.

        A file with a wrong content is removed, so that it is transferred again.
        """
        data, _ = self._open()
        found = _sha256(data)
        if found != self.sha256:
            self.discard()
            return found
        os.fsync(data)
        self.close()
        self.path.replace(self.target)
        for other in self.target.parent.glob(f"{_literal(self.target.name)}{PARTIAL}*"):
            other.unlink(missing_ok=True)  # the counts, and partial files of earlier contents
        return found

    def discard(self) -> None:
        """Remove all bytes that have arrived."""
        self.close()
        self.path.unlink(missing_ok=True)
        self._arrived_path.unlink(missing_ok=True)
        self._arrived = [0] * len(self._arrived)

    def close(self) -> None:
        """Close both files; the next `write` opens them again."""
        with self._lock:
            files, self._files = self._files, None
        for file in files or ():
            os.close(file)

    def _open(self) -> tuple[int, int]:
        with self._lock:
            if self._files is None:
                self.target.parent.mkdir(parents=True, exist_ok=True)
                self._files = _open(self.path), _open(self._arrived_path)
            return self._files


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)


def _read_counts(path: Path, wholes: list[int]) -> list[int]:
    """Return the counts of the ranges. An impossible count, larger than its range, becomes 0."""
    content = path.read_bytes() if path.exists() else b""
    content = content.ljust(len(wholes) * _COUNT_BYTES, b"\0")
    words = [content[i * _COUNT_BYTES :][:_COUNT_BYTES] for i in range(len(wholes))]
    counts = [int.from_bytes(word, "little") for word in words]
    return [count if count <= whole else 0 for count, whole in zip(counts, wholes, strict=True)]


def _sha256(file: int) -> str:
    found, offset = hashlib.sha256(), 0
    while block := os.pread(file, HASH_BLOCK_BYTES, offset):
        found.update(block)
        offset += len(block)
    return found.hexdigest()


def _literal(name: str) -> str:
    """Return a glob pattern that matches only this name."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)

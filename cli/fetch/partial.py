"""A file that is on its way: its bytes, and how many of each range have arrived.

    NAME.partial-<first 12 digits of its sha256>            the bytes, each at its place
    NAME.partial-<first 12 digits of its sha256>.arrived    8 bytes for each range: its count

Several streams write at once, each in a range of its own and from the range's beginning on. The
count follows the bytes, so whatever ends this program, nothing that is counted is missing. (A
power cut can break that; the sha256 at the end tells.)
"""

import hashlib
import os
import threading
from pathlib import Path

RANGE_BYTES = 64 << 20
_COUNT_BYTES = 8
HASH_BLOCK_BYTES = 4 << 20
MARK = ".partial-"


class PartialFile:
    """One file on its way.

    Args:
        target: where it will be.
        size: in bytes.
        sha256: hex digits that its content must have.
    """

    def __init__(self, target: Path, size: int, sha256: str) -> None:
        self.target, self.size, self.sha256 = target, size, sha256
        self.path = target.with_name(f"{target.name}{MARK}{sha256[:12]}")
        self._arrived_path = self.path.with_name(f"{self.path.name}.arrived")
        self.is_checked = False
        """Whether somebody has taken it to `finish` it."""
        self._lock = threading.Lock()
        self._files: tuple[int, int] | None = None
        wholes = [min(RANGE_BYTES, size - begin) for begin in range(0, size, RANGE_BYTES)]
        self._arrived = [0] * len(wholes)
        if self.path.exists():
            self._arrived = _read_counts(self._arrived_path, wholes)

    @property
    def arrived_bytes(self) -> int:
        """How many bytes are here."""
        return sum(self._arrived)

    def missing(self, number: int) -> tuple[int, int]:
        """Offset and count of what range `number` lacks."""
        begin = number * RANGE_BYTES
        whole = min(RANGE_BYTES, self.size - begin)
        return begin + self._arrived[number], whole - self._arrived[number]

    def ranges(self) -> list[int]:
        """The numbers of the ranges that lack bytes."""
        return [number for number in range(len(self._arrived)) if self.missing(number)[1]]

    def write(self, number: int, block: memoryview) -> None:
        """Put the next bytes of range `number` in their place. Raises OSError: no space is left."""
        data, counts = self._open()
        while block:
            written = os.pwrite(data, block, self.missing(number)[0])
            self._arrived[number] += written
            block = block[written:]
        count = self._arrived[number].to_bytes(_COUNT_BYTES, "little")
        os.pwrite(counts, count, number * _COUNT_BYTES)

    def finish(self) -> str:
        """Give it its name if its content is right; returns the sha256 that was found.

        A wrong one is removed, so that it comes anew.
        """
        data, _ = self._open()
        found = _sha256(data)
        if found != self.sha256:
            self.discard()
            return found
        os.fsync(data)
        self.close()
        self.path.replace(self.target)
        for other in self.target.parent.glob(f"{_literal(self.target.name)}{MARK}*"):
            other.unlink(missing_ok=True)  # the counts, and bytes of contents that it had before
        return found

    def discard(self) -> None:
        """Remove what has arrived."""
        self.close()
        self.path.unlink(missing_ok=True)
        self._arrived_path.unlink(missing_ok=True)
        self._arrived = [0] * len(self._arrived)

    def close(self) -> None:
        """Close its files; the next `write` opens them again."""
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
    """The counts; one that cannot be, because it is more than its whole range, is 0."""
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
    """A glob pattern that matches this name alone."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)

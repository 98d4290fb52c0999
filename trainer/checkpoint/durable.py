"""Writes files so that even after a power cut they exist either completely or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def fsync_directory(directory: Path) -> None:
    """Make renames and new names inside `directory` durable, if the file system can do that.

    Some file systems (FUSE, SMB) cannot fsync a directory, and return EINVAL or ENOTSUP.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def fsync_file(path: Path) -> None:
    """Make the content of `path` durable."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file's content as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_text(path: Path, text: str) -> None:
    """Atomically replace `path` by a file that holds `text` in UTF-8."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Atomically replace `path` by a file that holds `content`."""
    write_lines(path, [content])


def write_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Atomically replace `path` by a file that holds `lines`, which may be read from `path`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    fsync_directory(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Atomically replace `path` by `value` as JSON. Raises ValueError for NaN, which is no JSON."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")

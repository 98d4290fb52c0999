"""Writes the files of a checkpoint, and computes their checksums while it writes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from trainer.checkpoint.durable import fsync_file

_WRITE_BACK_BYTES = 64 << 20


def write_file(path: Path, pieces: Iterable[bytes | memoryview]) -> dict[str, Any]:
    """Write a new file, make it durable, and return its entry in the manifest.

    After each 64 MiB the system is asked to write to the disk and to drop the written pages.
    Otherwise it would first collect gigabytes, and drop the pages of the data set for them.

    Raises:
        OSError: The file cannot be written.
    """
    digest, size_bytes, asked_bytes = hashlib.sha256(), 0, 0
    with path.open("wb", buffering=0) as file, ThreadPoolExecutor(1, "sha256") as threads:
        for piece in pieces:
            hashed = threads.submit(digest.update, piece)  # while this piece is written
            rest = memoryview(piece)
            while rest:
                rest = rest[file.write(rest) :]
            hashed.result()
            size_bytes += len(piece)
            if size_bytes - asked_bytes >= _WRITE_BACK_BYTES:
                if hasattr(os, "posix_fadvise"):  # macOS has no posix_fadvise.
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                asked_bytes = size_bytes
    fsync_file(path)
    return {"bytes": size_bytes, "sha256": digest.hexdigest()}

"""Computes the sha256 of a file of this machine, and keeps it until the file changes.

`pulumi up` runs the program twice, for the preview and for the update, and a text may have many
gigabytes. So the checksum is kept in the cache folder, together with the file's inode number, size
and times of its last changes. A file that differs in one of them is read again.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from infra.airgap.manifest import sha256_of
from infra.command_line import cache_folder

# A file that has just been changed could be changed again and keep the same time of change. So the
# checksum is kept only if the last change was longer ago than this.
SETTLED_SECONDS = 2.0


def file_checksum(
    path: Path, folder: Path | None = None, compute: Callable[[Path], str] = sha256_of
) -> str:
    """Return the sha256 of a file, in hexadecimal digits.

    Args:
        path: the file.
        folder: folder in which checksums are kept; None: the cache folder.
        compute: computes the checksum; a parameter for tests.

    Raises:
        OSError: the file cannot be read.
    """
    state = _state(path)
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    record = (folder or cache_folder() / "checksums") / f"{name}.json"
    kept = _read(record)
    if kept.get("state") == state and isinstance(kept.get("sha256"), str):
        return str(kept["sha256"])
    started_seconds = time.time()
    checksum = compute(path)
    newest_change_seconds = max(state[2], state[3]) / 1e9
    if _state(path) == state and newest_change_seconds < started_seconds - SETTLED_SECONDS:
        _keep(record, {"state": state, "sha256": checksum})
    return checksum


def _state(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _read(record: Path) -> dict[str, object]:
    try:
        content: object = json.loads(record.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _keep(record: Path, content: dict[str, object]) -> None:
    """Write a record. An error is ignored, because the checksum can be computed again."""
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        new = record.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(content))
        new.replace(record)
    except OSError:
        pass

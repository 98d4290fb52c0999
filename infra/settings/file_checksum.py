"""The sha256 of a file of this machine, computed once for as long as the file stays as it is.

`pulumi up` runs the program twice, for the preview and for the update, and a text may have many
gigabytes. So the checksum is kept in the cache folder, with what tells one state of a file from
another: its place, size, and the times of its last changes.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from infra.airgap.manifest import sha256_of
from infra.command_line import cache_folder

# A file that was changed just now could be changed again without another time of change.
SETTLED_SECONDS = 2.0


def file_checksum(
    path: Path, folder: Path | None = None, compute: Callable[[Path], str] = sha256_of
) -> str:
    """The sha256 of a file, in hexadecimal digits.

    Args:
        path: the file.
        folder: where checksums are kept; None: in the cache folder.
        compute: reads the file; for tests.

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
    """A cache folder that cannot be written costs time and nothing else."""
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        new = record.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(content))
        new.replace(record)
    except OSError:
        pass

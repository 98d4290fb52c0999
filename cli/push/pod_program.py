"""Runs inside the pod of `push`: finds out whether a run's name is free, and renames at the end.

It is sent as text to `python3 -c`, so it uses only the standard library and imports nothing of
this project. Each command answers with one line of JSON:

    examine RUNS_DIR RUN INCOMING   whether a run of this name exists, its unfinished pushes, the
                                    files in the folder INCOMING, and the free space
    publish INCOMING RUN_DIR        renames the folder with the files that have arrived
"""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

KEY = "?" * 12


def examine(runs: Path, run: str, incoming: str) -> dict[str, object]:
    """Return what the volume has of a run before a push.

    The answer says whether the run exists, how many bytes each unfinished push of it has, which
    files have begun to arrive in the folder `incoming`, and how many bytes are free.
    """
    unfinished = {path.name: size_of(path) for path in sorted(runs.glob(f".push-{KEY}-{run}"))}
    exists = os.path.lexists(runs / run)
    below = runs / incoming
    arriving = [str(path.relative_to(below)) for path in below.rglob("*") if path.is_file()]
    room = free_bytes(runs)
    return {"exists": exists, "unfinished": unfinished, "arriving": arriving, "free_bytes": room}


def free_bytes(folder: Path) -> int | None:
    """Return how many bytes a pod may still write there; None if the file system cannot tell."""
    while not folder.exists():
        folder = folder.parent
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize if found.f_blocks else None


def size_of(folder: Path) -> int:
    """Return how many bytes the files in a folder and its subfolders take on the disk."""
    size = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # another push may be renaming the folder
                size += (Path(where) / name).lstat().st_blocks * 512
    return size


def publish(incoming: Path, run: Path) -> dict[str, object]:
    """Rename the folder, unless a run of this name has been made meanwhile."""
    if run.is_dir() and not incoming.exists():
        return {"ok": True}  # an earlier call has renamed it, and its answer was lost
    if os.path.lexists(run):
        return {"ok": False}
    for folder, _, _ in os.walk(incoming):
        sync(Path(folder))
    incoming.rename(run)
    sync(run.parent)
    return {"ok": True}


def sync(folder: Path) -> None:
    """Make the names in a folder durable, if the file system offers that."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # FUSE, for instance, cannot do it; the bytes of each file are already durable
    finally:
        os.close(descriptor)


def main(words: list[str]) -> None:
    """Run one command."""
    if words[0] == "examine":
        answer = examine(Path(words[1]), words[2], words[3])
    else:
        answer = publish(Path(words[1]), Path(words[2]))
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])

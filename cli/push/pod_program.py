"""Runs inside the pod of `push`: whether a run's name is free, and the rename at the end.

It is sent as text to `python3 -c`, so it uses the standard library alone and imports nothing of
this project. Commands, each with one line of JSON as its answer:

    look RUNS_DIR RUN INCOMING   what is there: a run of this name, unfinished pushes of it, files
                                 below INCOMING; and the room
    publish INCOMING RUN_DIR     give what has arrived the run's name
"""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

KEY = "?" * 12


def look(runs: Path, run: str, incoming: str) -> dict[str, object]:
    """Whether the run is there, how many bytes each unfinished push of it has, which files have
    begun to arrive in the folder `incoming`, and the room."""
    unfinished = {path.name: size_of(path) for path in sorted(runs.glob(f".push-{KEY}-{run}"))}
    exists = os.path.lexists(runs / run)
    below = runs / incoming
    begun = [str(path.relative_to(below)) for path in below.rglob("*") if path.is_file()]
    room = free_bytes(runs)
    return {"exists": exists, "unfinished": unfinished, "begun": begun, "free_bytes": room}


def free_bytes(folder: Path) -> int | None:
    """How many a pod may still write there; None where the file system does not tell."""
    while not folder.exists():
        folder = folder.parent
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize if found.f_blocks else None


def size_of(folder: Path) -> int:
    """The bytes of the files below a folder that are on the disk."""
    size = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # another push may be renaming it
                size += (Path(where) / name).lstat().st_blocks * 512
    return size


def publish(incoming: Path, run: Path) -> dict[str, object]:
    """Rename, unless somebody has made a run of this name meanwhile."""
    if run.is_dir() and not incoming.exists():
        return {"ok": True}  # the answer to the first asking was lost
    if os.path.lexists(run):
        return {"ok": False}
    for folder, _, _ in os.walk(incoming):
        sync(Path(folder))
    incoming.rename(run)
    sync(run.parent)
    return {"ok": True}


def sync(folder: Path) -> None:
    """Make its names durable, where the file system offers that."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # such as FUSE: the bytes of each file are durable already
    finally:
        os.close(descriptor)


def main(words: list[str]) -> None:
    """Run one command."""
    if words[0] == "look":
        answer = look(Path(words[1]), words[2], words[3])
    else:
        answer = publish(Path(words[1]), Path(words[2]))
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])

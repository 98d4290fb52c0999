"""Deletes a run from the volume.

This is a part of the program that pod_program.py describes.
"""

import fcntl
import os
import shutil
import time
from pathlib import Path

from cli.runs.pod_alive import alive


def delete(root: Path, name: str) -> dict[str, object]:
    """Delete one run. It is renamed first, so that nobody sees a run that is half deleted."""
    run = root / name
    for left in root.glob(f".deleted-{'?' * 12}-{name}"):  # what an interrupted deletion has left
        shutil.rmtree(left)
    if run.is_symlink():
        return {"state": "link"}
    if not run.is_dir():
        return {"state": "missing"}  # an earlier call may have deleted it, and its answer was lost
    if is_locked(run / "run.lock"):
        return {"state": "locked"}
    if closed := first_closed(run):
        return {"state": "closed", "path": closed}
    doomed = run
    if not name.startswith(".deleted-"):  # what an earlier deletion has left keeps its name
        doomed = root / f".deleted-{os.urandom(6).hex()}-{name}"
        run.rename(doomed)
    told = time.monotonic()
    for where, _, names in os.walk(doomed, topdown=False):
        for file in names:
            (Path(where) / file).unlink()
            told = alive(told)
    shutil.rmtree(doomed)
    return {"state": "deleted"}


def first_closed(run: Path) -> str:
    """Return the first folder of a run that prevents its deletion; empty if there is none.

    Such a folder cannot be read, or these rights do not suffice to remove files from it.
    """
    told, closed = time.monotonic(), list[str]()
    for where, folders, names in os.walk(run, onerror=lambda e: closed.append(str(e.filename))):
        told = alive(told)
        if (folders or names) and not os.access(where, os.W_OK | os.X_OK):
            closed.append(where)
        if closed:
            break
    return closed[0] if closed else ""


def is_locked(path: Path) -> bool:
    """Whether a training holds the lock of its run (trainer/checkpoint/run_lock.py).

    The answer is no if the file system has no locks.
    """
    try:
        with path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # no such file, or a file system without locks
    return False

"""Locks a folder, so that only one process of this machine works on it."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sandbox.waiting import wait_until

LOCK_SECONDS = 300


@contextmanager
def locked_folder(folder: Path, other: str) -> Generator[None]:
    """Hold a lock on a folder, which is made again if the lock's last owner has removed it.

    Args:
        folder: the folder to lock.
        other: what may hold the lock, for the message of an error.

    Raises:
        TimeoutError: the lock was not free within `LOCK_SECONDS`; the text names `other`.
    """
    descriptor = -1

    def busy() -> str | None:
        nonlocal descriptor
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if folder.exists() and os.path.samestat(os.fstat(descriptor), folder.stat()):
                return None
        except BlockingIOError:
            pass
        os.close(descriptor)
        return f"{folder} is locked"

    wait_until(f"{other} to end", busy, timeout_seconds=LOCK_SECONDS)
    try:
        yield
    finally:
        os.close(descriptor)

"""A lock on a folder, which the processes of this machine share."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sandbox.waiting import wait_until

LOCK_SECONDS = 300


@contextmanager
def locked(folder: Path, other: str) -> Generator[None]:
    """Hold a lock on a folder, which is made again if its last owner has removed it.

    Raises:
        TimeoutError: somebody else holds it for `LOCK_SECONDS`; the text names `other`.
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

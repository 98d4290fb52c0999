"""Ensures that only one process at a time saves the checkpoints of a run.

Two stacks may use one run name by mistake, or a rank 0 that lost its network may still write while
its successor already trains. A process holds an advisory lock on the file `<run>/run.lock` while it
trains; the lock ends with the process. The file holds the name of its owner. The owner reads it
again before it puts a checkpoint in place, which protects the run even if locks do not work.

If the file system has no locks, nothing keeps a second writer out, and it becomes the owner. Then
the first writer ends for good: two writers that take the run from each other would never complete
a checkpoint.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer.checkpoint.durable import fsync_file
from trainer.checkpoint.file_lock import NoLocksError, take_lock
from trainer.launch.exit_codes import FatalError, RetryableError

LOCK_FILE = "run.lock"
_WAIT_SECONDS = 20.0
_POLL_SECONDS = 0.2


class RunLock:
    """The right to write below one run directory."""

    def __init__(self, run_dir: Path, wait_seconds: float = _WAIT_SECONDS):
        """`acquire` waits at most `wait_seconds` for an owner that may be about to end."""
        self._path, self._wait_seconds = run_dir / LOCK_FILE, wait_seconds
        self._owner = {
            "id": uuid.uuid4().hex,
            "host": socket.gethostname(),
            "pod": os.environ.get("POD_NAME", ""),
            "pid": os.getpid(),
        }
        self._descriptor: int | None = None
        self._has_locks = True

    def acquire(self, say: Callable[[str], None] = print) -> None:
        """Become the owner. `say` prints a warning if the file system has no locks.

        Raises:
            RetryableError: Another process holds the lock.
            FatalError: This process may not write into the run's directory.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except PermissionError as error:
            raise FatalError(
                f"{self._path} cannot be written ({error}). This process runs as user "
                f"{os.getuid()}: give that user the right to read and write the run directory"
            ) from error
        deadline = time.monotonic() + self._wait_seconds
        while not self._locked(descriptor):
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise RetryableError(
                    f"another process writes this run: {_who(self._read())} holds {self._path}. "
                    "If two stacks use the same run_name, give one of them another name; if it "
                    "is the previous start of this run, it has to end first"
                )
            time.sleep(_POLL_SECONDS)
        self._descriptor = descriptor
        if not self._has_locks:
            say(
                f"warning: the file system of {self._path} has no locks, so nothing keeps a second "
                "training of this run out. If one starts, it takes the run over, and this one ends "
                "at its next checkpoint: give each stack a run_name of its own"
            )
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(self._owner).encode() + b"\n", 0)
        fsync_file(self._path)

    def check(self) -> None:
        """Check that this process is still the owner.

        Raises:
            RetryableError: Another process has become the owner since `acquire`.
            FatalError: The same, on a file system without locks, where a restart of this process
                would not wait for the other one.
        """
        owner = self._read()
        if owner.get("id") == self._owner["id"]:
            return
        text = f"another process has taken over this run: {_who(owner)} owns {self._path}"
        if owner and not self._has_locks:
            raise FatalError(
                f"{text}. This is {_who(self._owner)}: it writes nothing more, and does not take "
                "the run back, because the file system has no locks to keep the two apart. If two "
                "stacks use the same run_name, give one of them another name; if the other process "
                "is the next start of this run, there is nothing to do"
            )
        raise RetryableError(f"{text}; this process writes nothing more")

    def release(self) -> None:
        """Let another process become the owner, if this process has become it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _locked(self, descriptor: int) -> bool:
        """Take the lock if it is free. On a file system without locks it is always free."""
        try:
            return take_lock(descriptor)
        except NoLocksError:
            self._has_locks = False
            return True

    def _read(self) -> dict[str, Any]:
        """Read the file from the storage, and not from this machine's cache.

        After the lease of an NFS client has ended, its cache still holds its own old text.
        """
        try:
            with self._path.open("rb") as file:
                if hasattr(os, "posix_fadvise"):  # macOS has no posix_fadvise.
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                return dict(json.loads(file.read()))
        except (FileNotFoundError, ValueError, TypeError):
            return {}


def _who(owner: dict[str, Any]) -> str:
    if not owner:
        return "an unknown process"
    pod = f" in pod {owner['pod']}" if owner.get("pod") else ""
    return f"process {owner.get('pid')} on {owner.get('host')}{pod}"

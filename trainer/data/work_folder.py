"""Manages the folder beside a data set in which one process at a time makes it.

The folder is kept after a kill, so that the next start can continue.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainer.checkpoint.durable import fsync_directory, write_json
from trainer.checkpoint.file_lock import NoLocksError, take_lock
from trainer.data.request import what_differs
from trainer.data.stream import PROGRESS
from trainer.launch.exit_codes import FatalError

DOWNLOADS, RESULT = "downloads", "result"
_REQUEST, _LOCK, _REPLACED = "request.json", "lock", "replaced"


@contextmanager
def work_folder(directory: Path) -> Iterator[Path]:
    """Give `.<name>.partial` beside `directory` to this process alone.

    While another process has the folder, this function waits. On a file system without locks it
    cannot know that, and prints a warning. After a kill or a full disk the whole
    folder stays, so that the next start can continue. After a FatalError only downloads stay,
    because the settings or the files have to change. The folder is removed if it holds nothing that
    a later start could use.
    """
    folder = directory.with_name(f".{directory.name}.partial")
    lock = _lock(folder)
    try:
        yield folder
    except FatalError:
        _clear(folder)
        raise
    finally:
        kept = (PROGRESS, f"{DOWNLOADS}/*", f"{RESULT}/meta.json")
        if not any(any(folder.glob(pattern)) for pattern in kept):
            shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def begin(folder: Path, request: Mapping[str, Any]) -> None:
    """Keep the files of an earlier start with the same request; of others keep only downloads."""
    try:
        left: object = json.loads((folder / _REQUEST).read_text())
    except (FileNotFoundError, ValueError):
        left = None
    if left == request:
        if (folder / PROGRESS).exists():
            print(f"going on with what an earlier start has left in {folder}", flush=True)
    else:
        if isinstance(left, dict):
            reason = what_differs(left, request)  # pyright: ignore[reportUnknownArgumentType]
            print(f"an earlier start was for something else ({reason}); starting again", flush=True)
        _clear(folder)
        write_json(folder / _REQUEST, request)
    for name in (DOWNLOADS, RESULT):
        (folder / name).mkdir(exist_ok=True)
    for unfinished in (folder / RESULT).glob(".*"):  # A kill interrupted the write of a file.
        unfinished.unlink()


def put_in_place(folder: Path, directory: Path) -> None:
    """Give the finished data set its name. A data set with this name is replaced."""
    if directory.exists():
        directory.rename(folder / _REPLACED)
    (folder / RESULT).rename(directory)
    fsync_directory(directory.parent)
    shutil.rmtree(folder)


def remove_leftovers(directory: Path) -> None:
    """Remove the work folder of a start that was killed after it had put the data set in place."""
    folder = directory.with_name(f".{directory.name}.partial")
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if _is_free(descriptor):
            shutil.rmtree(folder)
    finally:
        os.close(descriptor)


def _clear(folder: Path) -> None:
    """Remove everything except downloads and the lock."""
    for path in folder.iterdir():
        if path.is_dir() and path.name != DOWNLOADS:
            shutil.rmtree(path)
        elif not path.is_dir() and path.name != _LOCK:
            path.unlink()


def _lock(folder: Path) -> int:
    """Make the folder, take its lock, and return the file descriptor that holds the lock."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / _LOCK
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:  # The previous owner has just removed the folder.
            continue
        try:
            _await_turn(descriptor, folder)
            if _is(path, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_free(descriptor: int) -> bool:
    """Take the lock, and return whether that was possible.

    It is not while another process uses the folder, for other settings. On a file system without
    locks nobody knows whether one does, so the lock is never free.
    """
    try:
        return take_lock(descriptor)
    except NoLocksError:
        return False


def _await_turn(descriptor: int, folder: Path) -> None:
    """Take the lock of a file, and wait for another process that has it."""
    try:
        if not take_lock(descriptor):
            print(f"another process prepares this data set in {folder}; waiting for it", flush=True)
            take_lock(descriptor, waits=True)
    except NoLocksError:
        print(
            f"warning: the file system of {folder} has no locks, so nothing keeps a second "
            "preparation of this data set out: start only one at a time",
            flush=True,
        )


def _is(path: Path, descriptor: int) -> bool:
    """Whether `path` is still the file that `descriptor` has opened."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False

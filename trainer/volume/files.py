"""Writes and finds the small files by which nodes check that they share a writable volume."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer.checkpoint.durable import fsync_directory

OTHER_CONTENT = 0
"""It stands for an errno, and means that the file exists with other content."""
_PREFIX = ".volume-proof-"


class WriteError(Exception):
    """The volume has refused a part of a write. `act` names the part, and `number` is the errno."""

    def __init__(self, act: str, error: OSError):
        super().__init__(f"{act} failed ({error.strerror or error})")
        self.act, self.number = act, error.errno or errno.EIO


@dataclass(frozen=True)
class Written:
    """How long a node's write took.

    Args:
        write_seconds: The time to write the new file and make it durable (fsync).
        rename_seconds: The time to rename it and make the folder durable.
    """

    write_seconds: float
    rename_seconds: float


def proof_file(folder: Path, node: int, token: str) -> Path:
    """Return the path of a node's file.

    Each attempt has another token, so that no client of a file server answers from its cache of an
    earlier file.
    """
    return folder / f"{_PREFIX}{node:05d}-{token}"


def write_proof(folder: Path, node: int, token: str) -> Written:
    """Write a node's file as a save writes a checkpoint: write, fsync, rename, fsync the folder.

    Args:
        folder: The folder of the run, on the volume.
        node: The rank of this node.
        token: The token of this attempt.

    Raises:
        WriteError: One of these parts failed. The files are then removed, if that is possible.
    """
    path = proof_file(folder, node, token)
    temporary = path.with_name(f"{path.name}.tmp")
    act, begin = "making the folder", time.monotonic()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        act = "writing a new file"
        with temporary.open("x") as file:
            file.write(_content(node, token))
            file.flush()
            act = "making the file durable (fsync)"
            os.fsync(file.fileno())
        written = time.monotonic()
        act = "renaming the file"
        temporary.rename(path)
        act = "making the folder durable (fsync)"
        fsync_directory(folder)
    except OSError as error:
        for left in (temporary, path):
            with contextlib.suppress(OSError):  # Only the error of the write is reported.
                left.unlink(missing_ok=True)
        raise WriteError(act, error) from error
    return Written(written - begin, time.monotonic() - written)


def look_for(
    folder: Path, tokens: Mapping[int, str], goes_on: Callable[[], bool]
) -> dict[int, int]:
    """Read the files of nodes again and again, until all of them have the right content.

    Args:
        folder: The folder of the run, on the volume.
        tokens: The tokens of the nodes, by their ranks.
        goes_on: Is called before each further attempt. It waits a moment, and returns whether to
            try again.

    Returns:
        For each node whose file was not found, the errno of the last attempt, or OTHER_CONTENT.
    """
    missing = dict.fromkeys(tokens, errno.ENOENT)
    while True:
        for node in list(missing):
            try:
                text = proof_file(folder, node, tokens[node]).read_text(errors="replace")
            except OSError as error:
                missing[node] = error.errno or errno.EIO
                continue
            if text == _content(node, tokens[node]):
                del missing[node]
            else:
                missing[node] = OTHER_CONTENT
        if not missing or not goes_on():
            return missing
        # The folder is opened anew, because this makes an NFS client ask the server. Otherwise it
        # may continue to answer from its cache that there is no such file.
        with contextlib.suppress(OSError):
            next(folder.iterdir(), None)


def remove_proof(folder: Path, node: int, token: str) -> None:
    """Remove the file of a node if it exists. Raises OSError if the volume refuses that."""
    proof_file(folder, node, token).unlink(missing_ok=True)


def remove_others(folder: Path, node: int, token: str) -> None:
    """Remove the files of the same node's earlier attempts, which were killed."""
    own = proof_file(folder, node, token)
    for path in folder.glob(f"{_PREFIX}{node:05d}-*"):
        if path != own:
            path.unlink(missing_ok=True)


def remove_all(folder: Path) -> None:
    """Remove the files of all nodes. Call this when the run is finished."""
    for path in folder.glob(f"{_PREFIX}*"):
        path.unlink(missing_ok=True)


def _content(node: int, token: str) -> str:
    return f"node {node} has written this, attempt {token}\n"

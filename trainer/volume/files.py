"""The small file by which a node shows that it can write, and by which the others see that."""

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
"""In place of an errno: the file is there, and holds something else."""
_PREFIX = ".volume-proof-"


class WriteError(Exception):
    """The volume has refused one act of a write; `act` says which, `number` is the errno."""

    def __init__(self, act: str, error: OSError):
        super().__init__(f"{act} failed ({error.strerror or error})")
        self.act, self.number = act, error.errno or errno.EIO


@dataclass(frozen=True)
class Written:
    """How long a node's write took.

    Args:
        write_seconds: until the new file was written and made durable (fsync).
        rename_seconds: until it had its name and the folder was durable, too.
    """

    write_seconds: float
    rename_seconds: float


def proof_file(folder: Path, node: int, token: str) -> Path:
    """Where a node's file is. Each attempt has another token, so that no client of a file server
    answers from what it knew of an earlier file."""
    return folder / f"{_PREFIX}{node:05d}-{token}"


def write_proof(folder: Path, node: int, token: str) -> Written:
    """Do what each save of a checkpoint does: write a new file, fsync, rename, fsync the folder.

    Args:
        folder: of the run, on the volume.
        node: rank of this node.
        token: of this attempt.

    Raises:
        WriteError: one of these acts failed; nothing is left then.
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
            with contextlib.suppress(OSError):  # what is said is why the write failed
                left.unlink(missing_ok=True)
        raise WriteError(act, error) from error
    return Written(written - begin, time.monotonic() - written)


def look_for(
    folder: Path, tokens: Mapping[int, str], goes_on: Callable[[], bool]
) -> dict[int, int]:
    """Look for the files of nodes until all are seen with what they have to hold.

    Args:
        folder: of the run, on the volume.
        tokens: by the nodes' ranks.
        goes_on: called before each further look; it waits a moment, and says whether to look again.

    Returns:
        For each node whose file was not seen the errno of the last look, or OTHER_CONTENT.
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
        # A client of NFS asks the server for a folder that is opened anew, and without that it may
        # go on answering that there is no such file.
        with contextlib.suppress(OSError):
            next(folder.iterdir(), None)


def remove_proof(folder: Path, node: int, token: str) -> None:
    """Remove the file of a node, if it is there. Raises OSError: the volume refuses that."""
    proof_file(folder, node, token).unlink(missing_ok=True)


def remove_others(folder: Path, node: int, token: str) -> None:
    """Remove what earlier attempts of the same node have left when they were killed."""
    own = proof_file(folder, node, token)
    for path in folder.glob(f"{_PREFIX}{node:05d}-*"):
        if path != own:
            path.unlink(missing_ok=True)


def remove_all(folder: Path) -> None:
    """Remove the files of all nodes, when the run is finished."""
    for path in folder.glob(f"{_PREFIX}*"):
        path.unlink(missing_ok=True)


def _content(node: int, token: str) -> str:
    return f"node {node} has written this, attempt {token}\n"

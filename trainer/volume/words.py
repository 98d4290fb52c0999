"""Error texts, with remedies, for nodes that do not share one writable volume. Pure."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from trainer.launch.exit_codes import ExitCode
from trainer.volume.files import OTHER_CONTENT, WriteError
from trainer.volume.remedy import LASTING, remedy

_SETTING = "run.train.volume_timeout_seconds"
_NEVER_BETTER = (*LASTING, errno.ENOTDIR)
_NOT_SHARED = (errno.ENOENT, OTHER_CONTENT)


def write_failed(folder: Path, mount: str, error: WriteError) -> tuple[ExitCode, str]:
    """Return the exit code and the reason for a node that cannot write."""
    code = ExitCode.FATAL if error.number in _NEVER_BETTER else ExitCode.RETRYABLE
    what_to_do = remedy(error.number)
    return code, f"the volume cannot be used here: in {_place(folder, mount)} {error}. {what_to_do}"


def no_answer(folder: Path, mount: str, act: str, seconds: float) -> tuple[ExitCode, str]:
    """Return the exit code and the reason for a volume that does not answer at all."""
    return ExitCode.RETRYABLE, (
        f"the volume does not answer: {act} in {_place(folder, mount)} was not over after "
        f"{seconds:g} s ({_SETTING}). Look whether this node reaches the file server"
    )


def own_file_gone(folder: Path, mount: str) -> tuple[ExitCode, str]:
    """Return the exit code and the reason for a node whose own file is gone in the round."""
    return ExitCode.RETRYABLE, (
        f"the file that this node has just written to {_place(folder, mount)} is gone again: "
        "another pod with the same rank may have removed it, or the volume loses files"
    )


def not_seen(
    folder: Path, mount: str, missing: Mapping[int, int], seconds: float
) -> tuple[ExitCode, str]:
    """Return the exit code and the reason for a node that does not see the others' files.

    Args:
        folder: The folder of the run.
        mount: The file system of this folder on this node.
        missing: The errno of the last attempt to read each file, by node; see `look_for`.
        seconds: How long the node has looked for the files.
    """
    nodes, place = ", ".join(map(str, sorted(missing))), _place(folder, mount)
    how = ", ".join(sorted({_problem(number) for number in missing.values()}))
    if any(number not in (*_NOT_SHARED, errno.EACCES, errno.EPERM) for number in missing.values()):
        return ExitCode.RETRYABLE, (
            f"what node(s) {nodes} have written cannot be read here, in {place}: {how}. Look "
            "whether this node reaches the file server"
        )
    return ExitCode.FATAL, (
        f"the nodes do not share one volume: what node(s) {nodes} have written cannot be seen "
        f"here, in {place}, after {seconds:g} s: {how}. All nodes need the same folder: with "
        "storage host-path the same network file system has to be mounted at dataRoot on every "
        "machine, and a claim has to be of a class that shares one volume (ReadWriteMany). A "
        f"volume that only shows files late needs a larger {_SETTING}"
    )


def _place(folder: Path, mount: str) -> str:
    return f"{folder} ({mount})" if mount else str(folder)


def _problem(number: int) -> str:
    if number == OTHER_CONTENT:
        return "the file holds something else"
    return "no such file" if number == errno.ENOENT else os.strerror(number)

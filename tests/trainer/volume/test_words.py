"""The messages about a volume, and whether another try could help."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from trainer.launch.exit_codes import ExitCode
from trainer.volume import words
from trainer.volume.files import OTHER_CONTENT, WriteError

RUN = Path("/data/runs/r")


def refused(number: int) -> WriteError:
    """Return the error of a write that the volume refuses with this error number."""
    return WriteError("writing a new file", OSError(number, "refused"))


@pytest.mark.parametrize(
    ("number", "code", "remedy"),
    [
        (errno.EROFS, ExitCode.FATAL, "mounted read-only"),
        (errno.EACCES, ExitCode.FATAL, "writable for uid"),
        (errno.EDQUOT, ExitCode.FATAL, "Make room"),
        (errno.EIO, ExitCode.RETRYABLE, "Look at the file server"),
        (errno.ESTALE, ExitCode.RETRYABLE, "Look at the file server"),
    ],
)
def test_refused_write_says_what_to_do(number: int, code: ExitCode, remedy: str) -> None:
    """An error that no retry mends is fatal. The message names the folder, its file system, the
    operation and a remedy.
    """
    got, text = words.write_failed(RUN, "nfs4 from server:/x", refused(number))
    assert got == code
    assert "/data/runs/r (nfs4 from server:/x) writing a new file failed (refused)" in text
    assert remedy in text


@pytest.mark.parametrize(
    ("missing", "code", "said"),
    [
        ({0: errno.ENOENT, 2: errno.ENOENT}, ExitCode.FATAL, "node(s) 0, 2 have written"),
        ({1: OTHER_CONTENT}, ExitCode.FATAL, "holds something else"),
        ({1: errno.EACCES}, ExitCode.FATAL, "Permission denied"),
        ({0: errno.ENOENT, 1: errno.EIO}, ExitCode.RETRYABLE, "Input/output error"),
    ],
)
def test_unseen_files_say_what_to_do(missing: dict[int, int], code: ExitCode, said: str) -> None:
    """Files that are missing or different are fatal, because folders that differ stay different. An
    error of the file server may pass, and another try is allowed.
    """
    got, text = words.not_seen(RUN, "", missing, 90)
    assert got == code
    assert said in text

"""Says what to do about a file that cannot be written, by the number of the error. Pure."""

from __future__ import annotations

import errno
import os

LASTING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM)
"""The disk is full or may not be written, so another attempt would fail the same way."""

FULL = (errno.ENOSPC, errno.EDQUOT)


def remedy(number: int | None) -> str:
    """Return a sentence, without its full stop, that says what to do about the error `number`."""
    if number == errno.EROFS:
        return (
            "The volume is mounted read-only: let the pods of every node mount it for writing. "
            "After an error of a disk, the kernel itself makes a file system read-only; its log on "
            "the machine says so"
        )
    if number in (errno.EACCES, errno.EPERM):
        return f"Make it writable for uid {os.getuid()}, on the file server and on every node"
    if number in FULL:
        return "Make room on the volume"
    if number == errno.EFBIG:
        return "The file system, or a limit of this process (ulimit -f), takes no file of this size"
    return "Look at the file server, and at the kernel's log of this node"

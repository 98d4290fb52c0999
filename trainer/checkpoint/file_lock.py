"""Takes the advisory lock of an open file, which the kernel gives to one process at a time."""

from __future__ import annotations

import errno
import fcntl

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class NoLocksError(Exception):
    """The file system has no locks, such as Lustre without `-o flock`."""


def take_lock(descriptor: int, *, waits: bool = False) -> bool:
    """Take the lock, and return whether this process has it. It ends with the descriptor.

    Args:
        descriptor: The open file.
        waits: Whether to wait until another process has given the lock back.

    Raises:
        NoLocksError: The file system has no locks.
        OSError: The file system has failed in another way.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise NoLocksError from error
    return True

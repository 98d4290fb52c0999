"""Keeps memory that a step of a CPU run has freed, for use in the next step."""

from __future__ import annotations

import ctypes
import sys

# The numbers of these parameters are those of glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGEST_BYTES = 1 << 30


def keep_freed_memory() -> bool:
    """Let glibc keep the memory that a step frees, and return whether it does.

    By default glibc gives large blocks back to the kernel when they are freed. In every step the
    kernel then gives out zeroed pages again, with one page fault each. docs/trainer.md has the
    figures, and mallopt(3) explains the two parameters.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has no mallopt.
    if mallopt is None:
        return False
    return all(mallopt(name, _LARGEST_BYTES) for name in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD))

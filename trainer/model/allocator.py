"""Memory between the steps of a CPU run."""

from __future__ import annotations

import ctypes
import sys

# glibc's malloc.h
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGEST_BYTES = 1 << 30


def keep_freed_memory() -> bool:
    """Let glibc keep what a step frees for the next one; returns whether it does.

    By default large blocks go back to the kernel when they are freed, and come again as zeroed
    pages, one fault each, at every step (docs/trainer.md has the figures). mallopt(3).
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is None:
        return False
    return all(mallopt(name, _LARGEST_BYTES) for name in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD))

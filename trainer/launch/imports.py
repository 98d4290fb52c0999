"""How a rank imports torch in less processor time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Python looks for no unused objects in this block, which is to import many modules.

    An import makes hundreds of thousands of objects, and nearly all of them stay. Python's search
    for those that do not goes through all of them again and again: it took a sixth of the
    processor time of a rank's imports. Later searches leave out what is there at the end.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()

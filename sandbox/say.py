"""Prints short lines for the user without buffering, so that make and CI show them at once."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


def say(text: str) -> None:
    """Print one line now."""
    print(text, flush=True)


@contextmanager
def phase(what: str) -> Iterator[None]:
    """Print what begins, and after the block how many seconds it took."""
    say(f"  {what} ...")
    start = time.monotonic()
    yield
    say(f"  {what}: {time.monotonic() - start:.0f} s")

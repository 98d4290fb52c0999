"""One short line for a person, at once: make and CI show it as it happens."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


def say(text: str) -> None:
    """Print one line now."""
    print(text, flush=True)


@contextmanager
def phase(what: str) -> Iterator[None]:
    """Say what begins, and how many seconds it took."""
    say(f"  {what} ...")
    start = time.monotonic()
    yield
    say(f"  {what}: {time.monotonic() - start:.0f} s")

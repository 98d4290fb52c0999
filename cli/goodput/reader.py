"""Runs inside a pod: prints the events of a run, compressed, as text.

It is sent as text to `python3 -c`, so it uses the standard library alone and imports nothing of
this project. Usage: `EVENT_FILE`. Exit status 3: there is no such file.
"""

import base64
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

NO_FILE = 3
ALIVE = b'{"event":"alive"'  # trainer/events/event.py writes it first in its line


def thinned(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines without signs of life that another one follows: only the last of a row counts."""
    waiting = b""
    for line in lines:
        is_alive = line.startswith(ALIVE)
        if waiting and not is_alive:
            yield waiting
        waiting = line if is_alive else b""
        if line and not is_alive:
            yield line
    if waiting:
        yield waiting


def packed(content: bytes) -> str:
    """The events as one word."""
    return base64.b64encode(zlib.compress(b"\n".join(thinned(content.split(b"\n"))))).decode()


def unpacked(text: str) -> bytes:
    """The events that `packed` has made a word of. Raises ValueError: it is not whole."""
    try:
        return zlib.decompress(base64.b64decode(text, validate=True))
    except zlib.error as error:
        raise ValueError(str(error)) from None


def main(words: list[str]) -> None:
    """Print the events of the file that the only word names."""
    path = Path(words[0])
    if not path.exists():
        sys.exit(NO_FILE)
    sys.stdout.write(packed(path.read_bytes()))


if __name__ == "__main__":
    main(sys.argv[1:])

"""Runs inside a pod: prints the events of a run as compressed text.

It is sent as text to `python3 -c`, so it uses only the standard library and imports nothing of
this project. Its argument is the event file. Exit status 3: there is no such file.
"""

import base64
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

NO_FILE = 3
ALIVE_SECONDS = 5.0  # a reader that gets no byte for a minute takes the connection for dead
ALIVE = b'{"event":"alive"'  # trainer/events/event.py begins the line of such an event with it
_GZIP = 31  # zlib then writes the header and the checksum of a gzip file


def thinned(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines, but only the last one of several `alive` events in a row."""
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


def packed(lines: Iterable[bytes]) -> str:
    """Compress the events by gzip, and return them as one word of text (base64).

    The lines are read one by one, because the file may be larger than the memory.
    """
    found, packer, told = bytearray(), zlib.compressobj(wbits=_GZIP), time.monotonic()
    for line in thinned(line.rstrip(b"\n") for line in lines):
        found += packer.compress(line + b"\n")
        if time.monotonic() - told >= ALIVE_SECONDS:
            print(".", end="", file=sys.stderr, flush=True)
            told = time.monotonic()
    return base64.b64encode(found + packer.flush()).decode()


def main(words: list[str]) -> None:
    """Print the events in the file that the only argument names."""
    path = Path(words[0])
    if not path.exists():
        sys.exit(NO_FILE)
    with path.open("rb") as lines:
        sys.stdout.write(packed(lines))


if __name__ == "__main__":
    main(sys.argv[1:])

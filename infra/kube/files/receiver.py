"""A program for the pod of an upload: it receives a file, checks it and gives it its final name.

It is sent as text to `python3 -c`, so it uses only the standard library and imports nothing of this
project. Its commands are `look TARGET SIZE SHA256` and `receive TARGET SIZE SHA256 OFFSET BYTES`.
Each prints one line of JSON.
"""

import hashlib
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

BLOCK_BYTES = 1 << 20
ALIVE_SECONDS = 5.0  # the other side gives up a connection that is silent for a minute


def partial(target: Path, sha256: str) -> Path:
    """The path of the file that holds the bytes until all have arrived and have been checked."""
    return target.with_name(f"{target.name}.partial-{sha256[:12]}")


def digest(path: Path) -> str:
    """The file's sha256 in hex digits.

    A dot is written to stderr every ALIVE_SECONDS, so that the connection does not fall silent.
    """
    found, told = hashlib.sha256(), time.monotonic()
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            found.update(block)
            if time.monotonic() - told >= ALIVE_SECONDS:
                told = time.monotonic()
                print(".", end="", file=sys.stderr, flush=True)
    return found.hexdigest()


def is_right(path: Path, size: int, sha256: str) -> bool:
    """Whether the file exists and has this size and sha256."""
    return path.is_file() and path.stat().st_size == size and digest(path) == sha256


def look(target: Path, size: int, sha256: str) -> dict[str, object]:
    """Whether the whole file is there (`complete`), and how many bytes of it arrived (`have`)."""
    path = partial(target, sha256)
    have = path.stat().st_size if path.exists() else 0
    if have > size:
        path.unlink()
        have = 0
    return {"complete": is_right(target, size, sha256), "have": have}


def receive(target: Path, size: int, sha256: str, offset: int, count: int) -> dict[str, object]:
    """Write `count` bytes from standard input at `offset`; after the last byte, `finish` the file.

    After a connection was cut, an earlier receiver may still run. It writes the same bytes at the
    same places, so the two do not disturb each other.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(partial(target, sha256), os.O_WRONLY | os.O_CREAT, 0o644)
    got = 0
    while got < count:
        block = os.read(0, min(count - got, BLOCK_BYTES))
        if not block:
            break
        view = memoryview(block)
        while view:
            written = os.pwrite(file, view, offset + got)
            got, view = got + written, view[written:]
    os.fsync(file)
    os.close(file)
    is_last = offset + got == size
    return {"got": got, **(finish(target, size, sha256) if is_last else {})}


def finish(target: Path, size: int, sha256: str) -> dict[str, object]:
    """Check the contents and rename the file. A wrong file is removed, so that it is sent again.

    After a connection was cut, another receiver may have finished the same file already.
    """
    path = partial(target, sha256)
    if not is_right(path, size, sha256):
        is_there = is_right(target, size, sha256)
        found = digest(path) if path.exists() and not is_there else "no file"
        path.unlink(missing_ok=True)
        return {"ok": True} if is_there else {"ok": False, "found": found}
    with suppress(FileNotFoundError):  # The other receiver has just renamed it.
        path.replace(target)
    for other in target.parent.iterdir():
        if other.name.startswith(f"{target.name}.partial-"):  # left by uploads of other contents
            other.unlink(missing_ok=True)
    return {"ok": True}


def main(words: list[str]) -> None:
    """Run the command that `words` name, and print its answer."""
    target, size, sha256 = Path(words[1]), int(words[2]), words[3]
    if words[0] == "look":
        answer = look(target, size, sha256)
    else:
        answer = receive(target, size, sha256, int(words[4]), int(words[5]))
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])

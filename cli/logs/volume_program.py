"""Runs inside the pod of `./disttrain logs`: reads a run's logs on the volume, and follows them.

It is sent as text to `python3 -c`, so it uses only the standard library and imports nothing of
this project. Its one argument is JSON: `folder`, `since` (a time as in the files, or empty),
`ranks`, `grep`, `tail` (-1: all) and `follow`. trainer/launch/run_log.py writes the files.

Each line that it prints begins with a letter or sign for its kind:

    S  a recent record of a node, which is printed whether or not it is wanted, so that the reader
       knows it
    B  the beginning of the history, after the first records S
    R  a wanted record; those of the history are in the order of time over all nodes
    H  the end of the history; all records that follow are new, and all of them are printed
    .  a sign that the program is still running
"""

from __future__ import annotations

import heapq
import json
import os
import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

RECENT, HISTORY_BEGINS, WANTED, HISTORY_ENDS, ALIVE = "S", "B", "R", "H", "."  # the kinds of lines
RECORD = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) (\d+) (-|\d+) (.*)", re.DOTALL)
TIME_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"
RECENT_SECONDS = 10
RECENT_BYTES = 1 << 20
POLL_SECONDS = 0.5
ALIVE_SECONDS = 10.0
NO_TIME = b"0001-01-01T00:00:00.000000Z"  # the time of a partial line before the first record
Timed = tuple[bytes, bytes]  # the time by which a record is sorted, and the record


def node_files(folder: str) -> dict[int, list[str]]:
    """Return the paths of each node's files, from the oldest to the one being written."""
    found: dict[int, list[tuple[bool, Path]]] = {}
    try:
        paths = list(Path(folder).iterdir())
    except FileNotFoundError:
        return {}
    for path in paths:
        match = re.fullmatch(r"node-(\d+)\.log(\..+)?", path.name)
        if match:  # the names of older files end with their time
            found.setdefault(int(match[1]), []).append((match[2] is None, path))
    return {node: [str(path) for _, path in sorted(each)] for node, each in found.items()}


def open_all(folder: str) -> dict[int, list[BinaryIO]]:
    """Open the files of all nodes.

    The folder is listed before and after, so that no file is missed that is renamed meanwhile.
    """
    opened: dict[int, list[BinaryIO]] = {}
    for _ in range(5):
        before, opened = node_files(folder), {}
        try:
            for node, paths in before.items():
                opened[node] = [Path(path).open("rb") for path in paths]  # noqa: SIM115
        except FileNotFoundError:
            continue
        if node_files(folder) == before:
            break
    return opened


def records_of(node: int, lines: Iterable[bytes], latest: bytes = NO_TIME) -> Iterator[Timed]:
    """Yield the time and the record of each line; the times never decrease.

    So a node's lines stay in their order, even if the node's clock was set back. A text that is no
    record, such as a part of a line that was cut off, gets the time of the line before it.
    """
    for text in lines:
        match = RECORD.fullmatch(text)
        if match:
            latest = max(latest, match[1])
            yield latest, text
        elif text:  # an empty line only ends the partial line before it
            yield latest, latest + b" %d - " % node + text


class Wanted:
    """Decides which records are wanted."""

    def __init__(self, since: str, ranks: list[int], grep: str) -> None:
        """Keep the options. An empty `since`, `ranks` or `grep` selects all records.

        `since` is a time as in the records, and `grep` is a regular expression.
        """
        self._since = since.encode()
        self._ranks = {str(rank).encode() for rank in ranks}
        self._grep = re.compile(grep) if grep else None

    @staticmethod
    def of(asked: dict[str, Any]) -> Wanted:
        """Make it from the program's argument."""
        return Wanted(asked["since"], asked["ranks"], asked["grep"])

    def __call__(self, at: bytes, record: bytes) -> bool:
        """Whether this record is wanted."""
        if at < self._since:
            return False
        match = RECORD.fullmatch(record)
        if not match or (self._ranks and match[3] not in self._ranks):
            return False
        return (
            self._grep is None or self._grep.search(match[4].decode(errors="replace")) is not None
        )


class Tail:
    """Reads one node's files, and then follows the newest one."""

    def __init__(self, node: int, folder: str) -> None:
        """`folder` is the folder of the file, which need not exist yet."""
        self._node = node
        self._path = Path(folder) / f"node-{node:05d}.log"
        self._file: BinaryIO | None = None
        self._rest = b""
        self._latest = NO_TIME

    def history(self, files: list[BinaryIO], since: float) -> Iterator[Timed]:
        """Yield the records of all files, from the oldest; `new` continues after them.

        `since` is in seconds since the epoch. Files without a later record may be left out.
        """
        for number, file in enumerate(files):
            if number == len(files) - 1:
                self._file = file
            elif os.fstat(file.fileno()).st_mtime >= since:
                yield from self._whole(file)
        if self._file is not None:
            yield from self._read(self._file)

    def new(self) -> Iterator[Timed]:
        """Yield the records that were written since the last call."""
        try:
            current = self._path.open("rb")
        except FileNotFoundError:
            return
        if self._file is not None:
            if os.path.sameopenfile(self._file.fileno(), current.fileno()):
                # The file that was just opened is used from now on: a network file system looks
                # for new bytes when a file is opened.
                current.seek(self._file.tell())
            else:  # the old file was renamed, and a new one was begun
                yield from self._whole(self._file)
            self._file.close()
        self._file = current
        yield from self._read(current)

    def _whole(self, file: BinaryIO) -> Iterator[Timed]:
        """Read a file that is no longer written; its last line may be incomplete."""
        yield from self._read(file)
        rest, self._rest = self._rest, b""
        yield from self._timed([rest] if rest else [])

    def _read(self, file: BinaryIO) -> Iterator[Timed]:
        def lines() -> Iterator[bytes]:
            while True:
                block = file.read(1 << 20)
                if not block:
                    return
                *whole, self._rest = (self._rest + block).split(b"\n")
                yield from whole

        yield from self._timed(lines())

    def _timed(self, lines: Iterable[bytes]) -> Iterator[Timed]:
        for at, record in records_of(self._node, lines, self._latest):
            self._latest = at
            yield at, record


def recent(node: int, files: list[BinaryIO]) -> list[bytes]:
    """Return the records of a node's last seconds, from the end of its newest file with any."""
    found: list[Timed] = []
    for file in reversed(files):
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - RECENT_BYTES))
        lines = file.read(RECENT_BYTES).split(b"\n")[:-1]
        file.seek(0)
        found = list(records_of(node, lines[1:] if size > RECENT_BYTES else lines))
        if found:
            break
    if not found:
        return []
    first = found[-1][0]
    if first != NO_TIME:
        last = datetime.strptime(first.decode(), TIME_FORMAT)
        first = (last - timedelta(seconds=RECENT_SECONDS)).strftime(TIME_FORMAT).encode()
    return [record for at, record in found if at >= first]


def put(kind: str, record: bytes = b"") -> None:
    """Print one line of this kind."""
    sys.stdout.buffer.write(kind.encode() + record + b"\n")


def main(words: list[str]) -> None:
    """Print the history, and then follow the files until the pod ends, if that is asked for."""
    asked = json.loads(words[0])
    folder, tail = str(asked["folder"]), int(asked["tail"])
    tails, said = show_history(folder, str(asked["since"]), Wanted.of(asked), tail), 0.0
    while asked["follow"]:
        for node in node_files(folder):
            tails.setdefault(node, Tail(node, folder))
        new = sorted((each for tail in tails.values() for each in tail.new()), key=itemgetter(0))
        for _, record in new:
            put(WANTED, record)
        if new or time.monotonic() - said > ALIVE_SECONDS:
            put(ALIVE)
            said = time.monotonic()
        sys.stdout.buffer.flush()
        time.sleep(POLL_SECONDS)


def show_history(folder: str, since: str, wanted: Wanted, tail: int) -> dict[int, Tail]:
    """Print the existing records; return, by node, the objects that follow the files."""
    now = datetime.now(UTC) - timedelta(seconds=RECENT_SECONDS)
    new = now.strftime(TIME_FORMAT).encode()
    opened = open_all(folder)
    for node, files in opened.items():
        for record in recent(node, files):
            put(RECENT, record)
    put(HISTORY_BEGINS)
    begin = datetime.strptime(since, TIME_FORMAT).replace(tzinfo=UTC) if since else None
    since_seconds = begin.timestamp() if begin else 0.0
    tails = {node: Tail(node, folder) for node in opened}
    histories = [tails[node].history(files, since_seconds) for node, files in opened.items()]
    kept: deque[bytes] = deque(maxlen=tail if tail >= 0 else None)
    said = time.monotonic()
    for at, record in heapq.merge(*histories, key=itemgetter(0)):
        if not wanted(at, record):
            if at >= new:  # it may have been written after `recent` read the end of the file
                put(RECENT, record)
        elif tail >= 0:
            kept.append(record)
        else:
            put(WANTED, record)
        if time.monotonic() - said > ALIVE_SECONDS:
            put(ALIVE)
            sys.stdout.buffer.flush()
            said = time.monotonic()
    for record in kept:
        put(WANTED, record)
    put(HISTORY_ENDS)
    sys.stdout.buffer.flush()
    return tails


if __name__ == "__main__":
    main(sys.argv[1:])

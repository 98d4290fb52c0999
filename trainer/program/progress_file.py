"""Reads how far a program is from a file that it writes, by a thread of its own.

So a volume that hangs holds up nobody. The file may grow by lines, or be written anew each time.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from trainer.program.progress import Point, point_from, point_in
from trainer.program.state_line import StateLine

LOOK_SECONDS = 0.5
LAST_LOOK_SECONDS = 2.0
"""So long the end of a start waits for what its program has written last."""
_MOST_BYTES = 1 << 20
_MARK_BYTES = 256


class Tail:
    """The lines that have come to a file since it was looked at last.

    Args:
        path: of the file, which need not be there.
        is_whole: whether text at the end, of which no end of a line is there, is a line all the
            same.
        most_bytes: that are read in one look; a longer line is left out.
    """

    def __init__(
        self, path: Path, is_whole: Callable[[bytes], bool], most_bytes: int = _MOST_BYTES
    ) -> None:
        self._path, self._is_whole, self._most_bytes = path, is_whole, most_bytes
        self._place, self._before = 0, b""

    def skip(self) -> None:
        """Leave out the lines that are in the file by now."""
        try:
            with self._path.open("rb") as file:
                self._place = file.seek(0, 2)
                file.seek(max(0, self._place - _MARK_BYTES))
                self._before = file.read(_MARK_BYTES)
        except OSError:
            self._place, self._before = 0, b""

    def new_lines(self) -> list[bytes]:
        """The lines since the last look; all of them where the file was replaced meanwhile."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._place - len(self._before))
                if file.read(len(self._before)) != self._before:
                    self._place, self._before = file.seek(0), b""
                data = file.read(self._most_bytes)
        except OSError:  # it is not there, or the volume fails, of which others tell
            self._place, self._before = 0, b""
            return []
        whole, end, rest = data.rpartition(b"\n")
        lines = whole.split(b"\n") if end else []
        if rest and self._is_whole(rest):
            lines, rest = [*lines, rest], b""
        if len(rest) == self._most_bytes:
            rest = b""
        taken = data[: len(data) - len(rest)]
        self._place += len(taken)
        self._before = (self._before + taken)[-_MARK_BYTES:]
        return lines


def point_of_json(line: bytes) -> Point | None:
    """What an object of JSON says by its names `step`, `loss` and `total`; None if nothing."""
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, Mapping):
        return None
    record = cast(Mapping[str, Any], found)
    return point_from(*(_as_text(record.get(name)) for name in ("step", "loss", "total")))


def _as_text(value: object) -> str | None:
    """The text of a number or a text; a whole number may be written as 3.0."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return str(value) if isinstance(value, int | float | str) else None


class ProgressFile:
    """Looks into the file now and then, and keeps what it says until that is asked for.

    Args:
        path: of the file.
        pattern: of its lines, with the groups that `point_in` knows; None: they are of JSON.
    """

    def __init__(self, path: Path, pattern: str | None) -> None:
        self._pattern = re.compile(pattern) if pattern is not None else None
        # What matches so far may go on: `step 1` becomes `step 12`. An object of JSON is closed.
        self._path, self._tail = path, Tail(path, self._is_whole)
        self._state_line = StateLine(path)
        self._seen, self._said = (0, 0, 0), ""
        self._lock, self._points = threading.Lock(), list[Point]()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="progress-file", daemon=True)

    def begin(self) -> None:
        """Start the thread; what the file has by now is of an earlier start and is left out."""
        self.skip()
        self._thread.start()

    def skip(self) -> None:
        """Leave out what the file says by now."""
        self._seen, whole = self._state(), self._whole()
        self._said = whole.words() if whole is not None else ""
        self._state_line.skip()
        self._tail.skip()

    def taken(self) -> list[Point]:
        """What was said since the last call."""
        with self._lock:
            points, self._points = self._points, []
        return points

    def end(self) -> None:
        """The program has ended: look once more, but wait for no volume that hangs."""
        self._is_over.set()
        self._thread.join(LAST_LOOK_SECONDS)

    def look(self, *, is_over: bool = False) -> bool:
        """Take what is new; returns whether there was a new line.

        An object that is written anew in place may be as long as before and end as before. Then no
        line is new, but the file has changed.

        Args:
            is_over: whether the program has ended, so that a line without an end is whole.
        """
        state = self._state()
        has_changed, self._seen = state != self._seen, state
        lines = self._tail.new_lines()
        if self._pattern is not None:
            without_end = self._state_line.new_lines(is_over=is_over)
            lines = [*without_end, *self._state_line.without_told(lines)]
        points = [point for line in lines if (point := self._read(line)) is not None]
        if (lines or has_changed) and not points and (whole := self._whole()) is not None:
            points = [whole] if whole.words() != self._said else []
        if points:
            self._said = points[-1].words()
        with self._lock:
            self._points += points
        return bool(lines)

    def _state(self) -> tuple[int, int, int]:
        """Differs when the file is another one, or was written to."""
        try:
            found = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return (found.st_ino, found.st_size, found.st_mtime_ns)

    def _read(self, line: bytes) -> Point | None:
        return point_of_json(line) if self._pattern is None else point_in(self._pattern, line)

    def _is_whole(self, rest: bytes) -> bool:
        if self._pattern is not None:
            return False
        return self._read(rest) is not None

    def _whole(self) -> Point | None:
        """What a file that is one object of JSON says, over several lines; None if it is not."""
        if self._pattern is not None:
            return None
        try:
            if self._path.stat().st_size > _MOST_BYTES:
                return None
            return point_of_json(self._path.read_bytes())
        except OSError:
            return None

    def _serve(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            self.look()
        while self.look():
            pass
        self.look(is_over=True)

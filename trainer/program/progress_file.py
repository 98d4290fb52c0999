"""Reads the progress of a program from a file that the program writes.

A separate thread reads it, so that a volume that hangs holds up nothing else. The file may grow by
lines, or the program may write it anew each time.
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
"""How long the end of a start waits until the last lines of its program are read."""
_MOST_BYTES = 1 << 20
_MARK_BYTES = 256


class Tail:
    """Reads the lines that were added to a file since the last reading.

    Args:
        path: The path of the file, which need not exist.
        is_whole: Returns whether the text after the last newline is a whole line, although its
            newline is missing.
        most_bytes: How many bytes are read at once; a longer line is left out.
    """

    def __init__(
        self, path: Path, is_whole: Callable[[bytes], bool], most_bytes: int = _MOST_BYTES
    ) -> None:
        self._path, self._is_whole, self._most_bytes = path, is_whole, most_bytes
        self._place, self._before = 0, b""

    def skip(self) -> None:
        """Skip the lines that are in the file now."""
        try:
            with self._path.open("rb") as file:
                self._place = file.seek(0, 2)
                file.seek(max(0, self._place - _MARK_BYTES))
                self._before = file.read(_MARK_BYTES)
        except OSError:
            self._place, self._before = 0, b""

    def new_lines(self) -> list[bytes]:
        """Return the lines since the last reading; all lines if the file was replaced since."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._place - len(self._before))
                if file.read(len(self._before)) != self._before:
                    self._place, self._before = file.seek(0), b""
                data = file.read(self._most_bytes)
        except OSError:  # there is no file, or the volume fails, which is reported elsewhere
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
    """Return the point in a JSON object with the names `step`, `loss` and `total`.

    The result is None if the line is no such object or has no step.
    """
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, Mapping):
        return None
    record = cast(Mapping[str, Any], found)
    return point_from(*(_as_text(record.get(name)) for name in ("step", "loss", "total")))


def _as_text(value: object) -> str | None:
    """Return a number or a text as a text, and 3.0 as `3`; None for any other value."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return str(value) if isinstance(value, int | float | str) else None


class ProgressFile:
    """Reads the file again and again, and keeps its points until they are taken.

    Args:
        path: The path of the file.
        pattern: The pattern of its lines, with the groups of `ProgressReader`; None if the lines
            are JSON objects.
    """

    def __init__(self, path: Path, pattern: str | None) -> None:
        self._pattern = re.compile(pattern) if pattern is not None else None
        # A text that matches a pattern may not be complete: `step 1` becomes `step 12`. A JSON
        # object shows by itself that it is complete.
        self._path, self._tail = path, Tail(path, self._is_whole)
        self._state_line = StateLine(path)
        self._seen, self._said = (0, 0, 0), ""
        self._lock, self._points = threading.Lock(), list[Point]()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="progress-file", daemon=True)

    def begin(self) -> None:
        """Start the thread. What the file has now is from an earlier start and is skipped."""
        self.skip()
        self._thread.start()

    def skip(self) -> None:
        """Skip what the file has now."""
        self._seen, whole = self._state(), self._whole()
        self._said = whole.words() if whole is not None else ""
        self._state_line.skip()
        self._tail.skip()

    def taken(self) -> list[Point]:
        """Return the points since the last call."""
        with self._lock:
            points, self._points = self._points, []
        return points

    def end(self) -> None:
        """Read the file once more after the end of the program.

        A volume that hangs is awaited only for `LAST_LOOK_SECONDS`.
        """
        self._is_over.set()
        self._thread.join(LAST_LOOK_SECONDS)

    def look(self, *, is_over: bool = False) -> bool:
        """Read what is new, and return whether there was a new line.

        A JSON object that is written anew in place may be as long as before and end as before. Then
        there is no new line, although the file has changed.

        Args:
            is_over: Whether the program has ended, so that a line without a newline is complete.
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
        """Return numbers that differ if the file was replaced or written to."""
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
        """Return the point in a file that is one JSON object over several lines; else None."""
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

"""Reads the progress of a program from the lines that it prints."""

from __future__ import annotations

import math
import re
import threading
import time
from dataclasses import dataclass

MOST_CHARACTERS = 4096
"""How many characters of a line are searched for the pattern.

The time that a pattern such as `.*step` takes grows with the square of the line's length. Meanwhile
Python runs no other thread of the launcher."""
_MOST_BYTES = 4 * MOST_CHARACTERS  # so many bytes of UTF-8 hold these characters


@dataclass(frozen=True)
class Point:
    """The progress in one line of the program.

    Args:
        step: The number of updates made so far, as the program counts them.
        loss: The loss; None if the line has none, and NaN if it is not finite.
        total: The number of updates of the whole run; None if the line does not have it.
        unix_seconds: When the line was read, in seconds since 1970.
    """

    step: int
    loss: float | None
    total: int | None
    unix_seconds: float

    def words(self) -> str:
        """Return a text such as `step 120/2000 loss 1.8307`; cli/status/progress.py reads it."""
        total = f"/{self.total}" if self.total is not None else ""
        return f"step {self.step}{total}{self._loss_words()}"

    def _loss_words(self) -> str:
        if self.loss is None:
            return ""
        return f" loss {self.loss:.4f}" if math.isfinite(self.loss) else " loss -"


class ProgressReader:
    """Takes output in the threads of the pipes, and keeps its points until they are taken.

    Args:
        pattern: A regular expression with the group `step`, and perhaps `loss` and `total`. With
            None, no points are read, and only the lines are counted.
    """

    def __init__(self, pattern: str | None) -> None:
        self._pattern = re.compile(pattern) if pattern is not None else None
        self._lock = threading.Lock()
        self._points = list[Point]()
        self._lines = 0
        self._rest = b""  # the begin of a line of rank 0, or of a state of a progress bar

    def take(self, block: bytes, *, of_rank_0: bool) -> None:
        """Take what one process has printed since the last call, of any length.

        This raises no error.
        """
        found = list[Point]()
        if self._pattern is not None and of_rank_0:
            texts = self._whole_texts(block)
            found = [point for text in texts if (point := point_in(self._pattern, text))]
        with self._lock:
            self._lines += block.count(b"\n")
            self._points += found

    def _whole_texts(self, block: bytes) -> list[bytes]:
        """Return the lines that have ended by now, and the complete states of a progress bar.

        A progress bar may write its states into one line for hours, separated by carriage returns.
        """
        *lines, rest = (self._rest + block).split(b"\n")
        states, end, rest = rest.rpartition(b"\r")
        self._rest = rest[:_MOST_BYTES]
        return [*lines, states] if end else lines

    def taken(self) -> tuple[list[Point], int]:
        """Return the points since the last call, and the number of lines of all processes."""
        with self._lock:
            points, self._points = self._points, []
            lines, self._lines = self._lines, 0
        return points, lines


def point_in(pattern: re.Pattern[str], line: bytes) -> Point | None:
    """Return the point in a line; None if it has none. This function is pure except for the time.

    If the line has several states of a progress bar, the last state with a point counts. Only
    MOST_CHARACTERS are searched: the first ones of a line, and those of the last states of a
    progress bar.
    """
    left = MOST_CHARACTERS
    for state in reversed(line.decode(errors="replace").split("\r")):
        text = state[:left]
        match = pattern.search(text)
        groups = match.groupdict() if match is not None else {}
        point = point_from(groups.get("step"), groups.get("loss"), groups.get("total"))
        left -= len(text)
        if point is not None or left == 0:
            return point
    return None


def point_from(step: str | None, loss: str | None, total: str | None) -> Point | None:
    """Return the point with the numbers in these texts; None if `step` is no whole number."""
    number = _whole(step)
    return None if number is None else Point(number, _loss(loss), _whole(total), time.time())


def _whole(text: str | None) -> int | None:
    digits = (text or "").replace(",", "").replace("_", "")
    return int(digits) if digits.isdecimal() and len(digits) <= 15 else None


def _loss(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else math.nan

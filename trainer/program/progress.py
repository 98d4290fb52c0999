"""Reads how far a program is from the lines that it prints."""

from __future__ import annotations

import math
import re
import threading
import time
from dataclasses import dataclass

MOST_CHARACTERS = 4096
"""Of a line in which a pattern is searched. The time that `.*step` takes grows with the square of
the line's length, and meanwhile Python runs nothing else of the launcher."""
_MOST_BYTES = 4 * MOST_CHARACTERS  # of them, in UTF-8


@dataclass(frozen=True)
class Point:
    """What one line of the program says.

    Args:
        step: updates made so far, as the program counts them.
        loss: None where the line has none; NaN where it has one that is not finite.
        total: updates of the whole run; None where the line does not say it.
        unix_seconds: when the line came.
    """

    step: int
    loss: float | None
    total: int | None
    unix_seconds: float

    def words(self) -> str:
        """`step 120/2000 loss 1.8307`; `./disttrain status` reads it (cli/status/progress.py)."""
        total = f"/{self.total}" if self.total is not None else ""
        return f"step {self.step}{total}{self._loss_words()}"

    def _loss_words(self) -> str:
        if self.loss is None:
            return ""
        return f" loss {self.loss:.4f}" if math.isfinite(self.loss) else " loss -"


class ProgressReader:
    """Takes output in the threads of the pipes, and keeps what it says until it is asked.

    Args:
        pattern: regular expression with the group `step`, perhaps `loss` and `total`; None: no
            line says anything.
    """

    def __init__(self, pattern: str | None) -> None:
        self._pattern = re.compile(pattern) if pattern is not None else None
        self._lock = threading.Lock()
        self._points = list[Point]()
        self._lines = 0
        self._rest = b""  # of rank 0: a line, or a state of a progress bar, whose end has not come

    def take(self, block: bytes, *, of_rank_0: bool) -> None:
        """What one process has printed since the last call, of any length. Raises nothing."""
        found = list[Point]()
        if self._pattern is not None and of_rank_0:
            texts = self._whole_texts(block)
            found = [point for text in texts if (point := point_in(self._pattern, text))]
        with self._lock:
            self._lines += block.count(b"\n")
            self._points += found

    def _whole_texts(self, block: bytes) -> list[bytes]:
        """The lines that have ended by now, and so far the states of a progress bar.

        A progress bar writes its states into one line, each after a carriage return, for hours.
        """
        *lines, rest = (self._rest + block).split(b"\n")
        states, end, rest = rest.rpartition(b"\r")
        self._rest = rest[:_MOST_BYTES]
        return [*lines, states] if end else lines

    def taken(self) -> tuple[list[Point], int]:
        """What was said since the last call, and the number of lines of all processes since."""
        with self._lock:
            points, self._points = self._points, []
            lines, self._lines = self._lines, 0
        return points, lines


def point_in(pattern: re.Pattern[str], line: bytes) -> Point | None:
    """What the line says; None if nothing. Of a progress bar the last state counts. Pure.

    Only the first MOST_CHARACTERS are searched, of a progress bar those of its last states.
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
    """The point of these texts; None where there is no step."""
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

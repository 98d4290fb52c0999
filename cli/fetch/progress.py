"""Shows the progress of a transfer: a line every few seconds, which a terminal rewrites."""

import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

TELL_SECONDS = 5.0
TERMINAL_SECONDS = 0.5
MOST_SECONDS = 100 * 3600  # a longer time left is only a guess, and is not shown in full
WINDOW_SECONDS = 15.0  # the rate is the mean over this time


def progress_line(done: int, total: int, bytes_per_second: float) -> str:
    """Return a line such as `1,200.0 of 4,000.0 MB (30 %), 85.0 MB/s, 33 s left`.

    `done` and `total` are in bytes. This function is pure.
    """
    share = 100 * done // total if total else 100
    text = f"{done / 1e6:,.1f} of {total / 1e6:,.1f} MB ({share} %)"
    if done >= total:
        return f"{text}, the sha256 is computed"
    if not bytes_per_second:
        return f"{text}, nothing arrives"
    left = (total - done) / bytes_per_second
    return f"{text}, {bytes_per_second / 1e6:,.1f} MB/s, {duration(left)} left"


def duration(seconds: float) -> str:
    """Return a text such as `45 s`, `12 min 5 s`, `3 h 20 min` or `more than 100 h`.

    This function is pure.
    """
    whole = round(seconds)
    if whole >= MOST_SECONDS:
        return f"more than {MOST_SECONDS // 3600} h"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class Progress:
    """Counts the bytes that many threads transfer, and writes lines about the progress.

    Args:
        total: the number of all bytes.
        done: how many of them have already arrived.
        output: the file that lines are written to.
        clock: returns the time of a monotonic clock, in seconds.
    """

    def __init__(
        self, total: int, done: int, output: TextIO, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.total, self.done = total, done
        self._output, self._clock = output, clock
        self._lock = threading.Lock()
        self._seen = deque([(clock(), done)])
        self._told_at = clock()
        self._width = 0

    def add(self, count: int) -> None:
        """Count bytes that have arrived."""
        with self._lock:
            self.done += count

    def tell(self) -> None:
        """Write a line if the last one is old enough. One thread has to call this often."""
        now, on_terminal = self._clock(), self._output.isatty()
        if now - self._told_at < (TERMINAL_SECONDS if on_terminal else TELL_SECONDS):
            return
        self._told_at = now
        self._seen.append((now, self.done))
        while len(self._seen) > 2 and now - self._seen[0][0] > WINDOW_SECONDS:
            self._seen.popleft()
        (begin, before), (end, after) = self._seen[0], self._seen[-1]
        line = progress_line(after, self.total, (after - before) / (end - begin))
        if on_terminal:
            line = line[: shutil.get_terminal_size().columns - 1]  # so that it is not wrapped
            self._output.write(f"\r{line.ljust(self._width)}")
            self._width = len(line)
        else:
            self._output.write(f"{line}\n")
        self._output.flush()

    def end(self) -> None:
        """Clear the line that is rewritten on a terminal, so that other lines can follow."""
        if self._width:
            self._output.write(f"\r{' ' * self._width}\r")
            self._output.flush()
            self._width = 0

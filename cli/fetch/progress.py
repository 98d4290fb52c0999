"""How far a transfer has come: a line every few seconds, on a terminal one that is rewritten."""

import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

TELL_SECONDS = 5.0
TERMINAL_SECONDS = 0.5
MOST_SECONDS = 100 * 3600  # a time left that is longer is a guess
WINDOW_SECONDS = 15.0  # the rate is that of so long a time


def progress_line(done: int, total: int, bytes_per_second: float) -> str:
    """`1,200 of 4,000 MB (30 %), 85.0 MB/s, 33 s left`. Pure; sizes in bytes."""
    share = 100 * done // total if total else 100
    text = f"{done / 1e6:,.1f} of {total / 1e6:,.1f} MB ({share} %)"
    if done >= total:
        return f"{text}, the sha256 is computed"
    if not bytes_per_second:
        return f"{text}, nothing arrives"
    left = (total - done) / bytes_per_second
    return f"{text}, {bytes_per_second / 1e6:,.1f} MB/s, {duration(left)} left"


def duration(seconds: float) -> str:
    """`45 s`, `12 min 5 s`, `3 h 20 min`, `more than 100 h`. Pure."""
    whole = round(seconds)
    if whole >= MOST_SECONDS:
        return f"more than {MOST_SECONDS // 3600} h"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class Progress:
    """Counts bytes from many threads, and tells.

    Args:
        total: bytes in all.
        done: how many of them are here already.
        output: where lines go.
        clock: seconds, monotonic.
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
        """So many bytes more are here."""
        with self._lock:
            self.done += count

    def tell(self) -> None:
        """Write a line if it is time to; to be called often, by one thread."""
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
            line = line[: shutil.get_terminal_size().columns - 1]  # a longer one would be two lines
            self._output.write(f"\r{line.ljust(self._width)}")
            self._width = len(line)
        else:
            self._output.write(f"{line}\n")
        self._output.flush()

    def end(self) -> None:
        """Leave the line that is rewritten, so that others can follow."""
        if self._width:
            self._output.write(f"\r{' ' * self._width}\r")
            self._output.flush()
            self._width = 0

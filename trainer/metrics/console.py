"""Prints rank 0's lines and, on a terminal, also a progress bar that changes in place."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from typing import TextIO

_SECONDS_BETWEEN_BARS = 0.1
_WIDTH = 24


class Console:
    """Prints lines and, if the output is a terminal, a progress bar below them."""

    def __init__(self, speaks: bool, stream: TextIO | None = None):
        """`speaks` says whether this rank prints at all. `stream` is standard output by default."""
        self._stream = stream or sys.stdout
        self._speaks = speaks
        self.has_bar = speaks and self._stream.isatty()
        self._lock = threading.Lock()  # The thread that writes checkpoints prints too.
        self._bar, self._drawn_at = "", 0.0

    def say(self, text: str) -> None:
        """Print one line that stays."""
        if self._speaks:
            with self._lock:
                clear = "\r\033[K" if self._bar else ""
                print(f"{clear}{text}", file=self._stream)
                print(self._bar, end="", file=self._stream, flush=True)

    def progress(self, step: int, max_steps: int, text: str) -> None:
        """Redraw the bar, at most ten times per second. Without a terminal nothing is done."""
        now = time.monotonic()
        if not self.has_bar or (now - self._drawn_at < _SECONDS_BETWEEN_BARS and step < max_steps):
            return
        with self._lock:
            line = f"{bar(step, max_steps)} {text}"[: shutil.get_terminal_size().columns - 1]
            self._drawn_at, self._bar = now, f"\r\033[K{line}"
            print(self._bar, end="", file=self._stream, flush=True)

    def end(self) -> None:
        """Leave the last bar as a line, so that other output begins below it."""
        if self._bar:
            with self._lock:
                self._bar = ""
                print(file=self._stream, flush=True)


def bar(step: int, max_steps: int) -> str:
    """Return a bar such as `[######------] 50% 5/10`."""
    done = _WIDTH * step // max_steps
    return f"[{'#' * done}{'-' * (_WIDTH - done)}] {step / max_steps:.0%} {step}/{max_steps}"


def duration(seconds: float | None) -> str:
    """Format a duration as `4.2s`, `3m05s` or `2h07m`, or as `-` if it is not known."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"

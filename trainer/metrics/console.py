"""Rank 0's lines: plain ones in a log; on a terminal also a bar that changes in place."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from typing import TextIO

_SECONDS_BETWEEN_BARS = 0.1
_WIDTH = 24


class Console:
    """Prints lines, and a progress bar below them where there is a terminal."""

    def __init__(self, speaks: bool, stream: TextIO | None = None):
        """`speaks`: whether this rank prints at all."""
        self._stream = stream or sys.stdout
        self._speaks = speaks
        self.has_bar = speaks and self._stream.isatty()
        self._lock = threading.Lock()  # checkpoints report from their own thread
        self._bar, self._drawn_at = "", 0.0

    def say(self, text: str) -> None:
        """Print one line that stays."""
        if self._speaks:
            with self._lock:
                clear = "\r\033[K" if self._bar else ""
                print(f"{clear}{text}", file=self._stream)
                print(self._bar, end="", file=self._stream, flush=True)

    def progress(self, step: int, max_steps: int, text: str) -> None:
        """Redraw the bar, at most ten times a second; nothing without a terminal."""
        now = time.monotonic()
        if not self.has_bar or (now - self._drawn_at < _SECONDS_BETWEEN_BARS and step < max_steps):
            return
        with self._lock:
            line = f"{bar(step, max_steps)} {text}"[: shutil.get_terminal_size().columns - 1]
            self._drawn_at, self._bar = now, f"\r\033[K{line}"
            print(self._bar, end="", file=self._stream, flush=True)

    def end(self) -> None:
        """Leave the bar as a line."""
        if self._bar:
            with self._lock:
                self._bar = ""
                print(file=self._stream, flush=True)


def bar(step: int, max_steps: int) -> str:
    """`[######------] 50% 5/10`."""
    done = _WIDTH * step // max_steps
    return f"[{'#' * done}{'-' * (_WIDTH - done)}] {step / max_steps:.0%} {step}/{max_steps}"


def duration(seconds: float | None) -> str:
    """`4.2s`, `3m05s` or `2h07m`; `-` where it is not known."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"

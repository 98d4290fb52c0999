"""Decides when a long work prints how far it is, so that it does not look as if it hangs."""

from __future__ import annotations

import time

SECONDS_BETWEEN_LINES = 30.0


class LongWork:
    """A work that begins now, and prints a line now and then."""

    def __init__(self) -> None:
        self._spoke_at = time.monotonic()

    def is_line_due(self) -> bool:
        """Whether to print a line, because the last one, or the begin, is long enough ago."""
        is_due = time.monotonic() - self._spoke_at >= SECONDS_BETWEEN_LINES
        if is_due:
            self._spoke_at = time.monotonic()
        return is_due

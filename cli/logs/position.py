"""How far the log of a pod was read."""

import re


class Position:
    """How far a log was read, so that a later request can continue there.

    A request can only name a whole second, and so may return lines again. The node's container
    runtime stamps each line in nanoseconds. Lines with the same stamp are counted.
    """

    def __init__(self) -> None:
        self.last, self.at = "", 0.0
        self._passed, self._met = 0, 0

    def begin(self) -> None:
        """Note that a new request begins, which may return the lines of the last second again."""
        self._met = 0

    def passes(self, stamp: bytes, at: float) -> bool:
        """Whether a line is new. `at` is the time of `stamp` in seconds since the epoch."""
        order = order_of(stamp.decode(errors="replace"))
        if order < self.last:
            return False
        if order > self.last:
            self.last, self.at, self._passed, self._met = order, at, 1, 1
            return True
        self._met += 1
        if self._met <= self._passed:
            return False
        self._passed = self._met
        return True


def order_of(stamp: str) -> str:
    """Give a time of RFC 3339 nine digits after the point, so that times sort as texts.

    This function is pure.
    """
    match = re.fullmatch(r"([^.Z+]*?)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)", stamp)
    return f"{match[1]}.{(match[2] or '').ljust(9, '0')}" if match else stamp

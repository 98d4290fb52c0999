"""Tells lasting problems from momentary ones. The file goes into pods unchanged."""

from collections.abc import Iterable


class Lasting:
    """Remembers since when each thing has been seen in every observation without a break."""

    def __init__(self, patience_seconds: float) -> None:
        """`patience_seconds`: how long a thing must be seen without a break to count as lasting."""
        self._patience_seconds = patience_seconds
        self._since: dict[str, float] = {}

    def lasting(self, seen: Iterable[str], now_seconds: float) -> set[str]:
        """Add an observation, and return the things that count as lasting.

        Args:
            seen: the things that are seen now.
            now_seconds: the time, by a clock that is never set.
        """
        self._since = {name: self._since.get(name, now_seconds) for name in seen}
        end = now_seconds - self._patience_seconds
        return {name for name, since in self._since.items() if since <= end}

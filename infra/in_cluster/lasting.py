"""What lasts, and not only happens once. The file goes into pods as it is."""

from collections.abc import Iterable


class Lasting:
    """Since when each thing has been seen at every look, by the clock of this program."""

    def __init__(self, patience_seconds: float) -> None:
        """`patience_seconds`: how long something has to be seen without a break."""
        self._patience_seconds = patience_seconds
        self._since: dict[str, float] = {}

    def lasting(self, seen: Iterable[str], now_seconds: float) -> set[str]:
        """The things that have been seen at every look for as long as patience lasts."""
        self._since = {name: self._since.get(name, now_seconds) for name in seen}
        end = now_seconds - self._patience_seconds
        return {name for name, since in self._since.items() if since <= end}

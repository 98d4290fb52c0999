"""The middle of many numbers, in memory that does not grow with how many there are. Pure."""

from __future__ import annotations

from collections import Counter


class Median:
    """Counts numbers by their first four digits: the median is exact to one part in 2000."""

    def __init__(self) -> None:
        self._counts = Counter[float]()

    def add(self, number: float) -> None:
        """Count a number that is not negative."""
        self._counts[float(f"{number:.3e}")] += 1

    def value(self) -> float | None:
        """The median; None where there is no number."""
        total = self._counts.total()
        passed, middle = 0, list[float]()
        for number, count in sorted(self._counts.items()):
            before, passed = passed, passed + count
            # One place is in the middle of an odd number of them, two are of an even number.
            middle += [
                number for place in {(total - 1) // 2, total // 2} if before <= place < passed
            ]
        return sum(middle) / len(middle) if middle else None

"""Computes the median of many numbers without keeping all of them.

This module does no input or output.
"""

from __future__ import annotations

from collections import Counter


class Median:
    """Counts numbers by their first four digits, so that the median is exact to 1 part in 2000."""

    def __init__(self) -> None:
        self._counts = Counter[float]()

    def add(self, number: float) -> None:
        """Count a number that is not negative."""
        self._counts[float(f"{number:.3e}")] += 1

    def value(self) -> float | None:
        """Return the median; None if there are no numbers."""
        total = self._counts.total()
        passed, middle = 0, list[float]()
        for number, count in sorted(self._counts.items()):
            before, passed = passed, passed + count
            # An odd number of numbers has one middle place, and an even number has two.
            middle += [
                number for place in {(total - 1) // 2, total // 2} if before <= place < passed
            ]
        return sum(middle) / len(middle) if middle else None

"""Reduces the values that a run has recorded to curves of a limited number of points.

This is a part of the program that pod_program.py describes.
"""

from pathlib import Path

from cli.runs.pod_metrics import number, records

CURVES = ("loss", "val_loss", "tokens_per_second")


def curves(path: Path, most: int) -> dict[str, list[tuple[int, float]]]:
    """Return (step, value) pairs for each name in CURVES, in the order of the steps.

    The pairs are divided into at most `most` stretches, and only the lowest and the highest value
    of each are kept. So a spike stays visible, however long the run is.
    """
    found = {name: Curve(most) for name in CURVES}
    for step, record in records(path):
        for name, curve in found.items():
            value = number(record.get(name))
            if value is not None:
                curve.add((step, value))
    return {name: thinned(curve.pairs(), most) for name, curve in found.items()}


class Curve:
    """Keeps the lowest and the highest of the (step, value) pairs of each stretch of steps.

    The stretches become longer as more pairs come, so that there are never more than `4 * most`.
    So the memory does not grow with the length of the run. The pairs may come in any order.
    """

    def __init__(self, most: int) -> None:
        self._most, self._length = 4 * most, 1  # the length of a stretch is in steps
        # By the number of a stretch: its lowest and its highest pair.
        self._stretches: dict[int, list[tuple[int, float]]] = {}
        self._ends: list[tuple[int, float]] = []  # the first pair and the last one

    def add(self, pair: tuple[int, float]) -> None:
        """Take a pair."""
        if not self._ends:
            self._ends = [pair, pair]
        elif pair < self._ends[0]:
            self._ends[0] = pair
        elif pair > self._ends[1]:
            self._ends[1] = pair
        self._keep(pair)
        if len(self._stretches) > self._most:
            before, self._stretches = self._stretches, {}
            self._length *= 2
            for low, high in before.values():
                self._keep(low)
                self._keep(high)

    def _keep(self, pair: tuple[int, float]) -> None:
        number = pair[0] // self._length
        stretch = self._stretches.get(number)
        if stretch is None:
            self._stretches[number] = [pair, pair]
        elif pair[1] < stretch[0][1]:
            stretch[0] = pair
        elif pair[1] > stretch[1][1]:
            stretch[1] = pair

    def pairs(self) -> list[tuple[int, float]]:
        """Return the pairs that were kept, in the order of the steps."""
        return sorted({*self._ends, *(pair for both in self._stretches.values() for pair in both)})


def thinned(pairs: list[tuple[int, float]], most: int) -> list[tuple[int, float]]:
    """Keep the first and the last pair, and the lowest and the highest pair of each stretch."""
    if len(pairs) <= 2 * most:
        return pairs
    kept = {pairs[0], pairs[-1]}
    for at in range(most):
        begin, end = (len(pairs) * n // most for n in (at, at + 1))
        stretch = pairs[begin:end]
        kept |= {min(stretch, key=value_of), max(stretch, key=value_of)}
    return sorted(kept)


def value_of(pair: tuple[int, float]) -> float:
    """Return the value of a (step, value) pair."""
    return pair[1]

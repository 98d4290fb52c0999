"""Computes a random order of any number of things, place by place, without storing it.

The construction is a generalised Feistel network with cycle-walking: J. Black and P. Rogaway,
"Ciphers with Arbitrary Finite Domains" (CT-RSA 2002), after M. Luby and C. Rackoff, "How to
Construct Pseudorandom Permutations from Pseudorandom Functions" (SIAM J. Computing 17, 1988). The
round function is the finaliser of SplitMix64: G. Steele, D. Lea and C. Flood, "Fast Splittable
Pseudorandom Number Generators" (OOPSLA 2014).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 8  # The theorem needs 4, but small sets look random only with more.
_GOLDEN = 0x9E3779B97F4A7C15
_U64 = np.uint64


def mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser: one-to-one on 64 bits; each input bit changes half of the output."""
    value = (value ^ (value >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> _U64(27))) * _U64(0x94D049BB133111EB)
    return value ^ (value >> _U64(31))


def draw(*numbers: int) -> int:
    """Return a number below 2^64 that depends on all of `numbers` and their order."""
    state = np.zeros(1, np.uint64)
    for number in numbers:
        state = mix(state + _U64((number + _GOLDEN) % 2**64))
    return int(state[0])


class Permutation:
    """A one-to-one map of range(size) onto itself. Each key gives another map."""

    def __init__(self, size: int, *key: int):
        """`size` is at least 1 and below 2^62. The numbers `key` choose the permutation."""
        assert 1 <= size < 2**62
        self._size = size
        # A number below rows * columns, which is hardly more than size, is a pair of a row and a
        # column. Each round adds to one of the two a value that depends on the other.
        self._rows = math.isqrt(size - 1) + 1
        self._columns = -(-size // self._rows)
        self._keys = [_U64(draw(*key, number)) for number in range(_ROUNDS)]

    def __call__(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the item at each of `places`, which are in range(size) and have any shape."""
        found = self._once(places.astype(np.uint64).ravel())
        # A result outside range(size) is mapped again, until the cycle comes back into the range.
        while len(outside := np.flatnonzero(found >= _U64(self._size))):
            found[outside] = self._once(found[outside])
        return found.astype(np.int64).reshape(places.shape)

    def _once(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        rows, columns = _U64(self._rows), _U64(self._columns)
        row, column = numbers // columns, numbers % columns
        for number, key in enumerate(self._keys):
            if number % 2:
                column = (column + mix(row ^ key) % columns) % columns
            else:
                row = (row + mix(column ^ key) % rows) % rows
        return row * columns + column

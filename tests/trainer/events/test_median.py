"""The median of many numbers, compared with Python's own."""

from __future__ import annotations

import statistics

from hypothesis import given
from hypothesis import strategies as st

from trainer.events.median import Median


def median_of(numbers: list[float]) -> float | None:
    median = Median()
    for number in numbers:
        median.add(number)
    return median.value()


@given(st.lists(st.floats(1e-3, 1e15), min_size=1, max_size=40))
def test_median_is_right_to_four_digits(numbers: list[float]) -> None:
    found, expected = median_of(numbers), statistics.median(numbers)
    assert found is not None
    assert abs(found - expected) <= expected / 1500


@given(st.lists(st.integers(0, 9999), min_size=1, max_size=40))
def test_median_of_short_numbers_is_exact(numbers: list[int]) -> None:
    assert median_of([float(each) for each in numbers]) == statistics.median(numbers)


def test_median_of_no_numbers_is_none() -> None:
    assert median_of([]) is None

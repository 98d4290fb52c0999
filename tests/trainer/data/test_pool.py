"""The map over worker processes: the order of results, errors, and processes that are killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trainer.data import pool
from trainer.launch.exit_codes import RetryableError

LARGE_BYTES = 50_000_000  # more than a pipe holds


def make_square(offset: int) -> Callable[[int], int]:
    def square(number: int) -> int:
        time.sleep(0.002 * (number % 3))  # so that later items are done first
        return number * number + offset

    return square


def make_large() -> Callable[[int], bytes]:
    return lambda number: bytes(LARGE_BYTES)


def make_failing() -> Callable[[int], int]:
    def fail(number: int) -> int:
        raise EOFError(f"item {number} is cut")

    return fail


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_results_come_in_the_order_of_items(workers: int) -> None:
    found = list(pool.ordered_map(make_square, (7,), range(50), workers))
    assert found == [(number, number * number + 7) for number in range(50)]
    assert list(pool.ordered_map(make_square, (7,), [], workers)) == []


def test_items_are_read_only_a_little_ahead() -> None:
    """At most a few items per worker are read ahead, so that they need little memory."""
    read: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            read.append(number)
            yield number

    for number, _ in pool.ordered_map(make_square, (0,), items(), 2):
        assert len(read) <= number + 2 * 2 + 2
    assert len(read) == 100


def test_process_killed_while_it_sends_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is killed while it sends a result is noticed. Half of the result is in the
    pipe, whose end would never come if other processes held the pipe open.
    """
    made: list[Any] = []
    begin = pool.Worker.__init__

    def record(self: Any, *arguments: Any) -> None:
        begin(self, *arguments)
        made.append(self)

    monkeypatch.setattr(pool.Worker, "__init__", record)

    def items() -> Iterator[int]:
        yield 0
        assert made[0].connection.poll(120), "no result came"  # and nobody reads the rest of it
        os.kill(made[0].process.pid, signal.SIGKILL)
        yield 1

    with pytest.raises(RetryableError, match="ended unexpectedly"):
        list(pool.ordered_map(make_large, (), items(), 2))


@pytest.mark.parametrize("workers", [1, 2])
def test_error_of_the_work_is_raised_as_it_is(workers: int) -> None:
    """The error of the first item is raised unchanged, whichever process fails first."""
    with pytest.raises(EOFError, match="item 0 is cut"):
        list(pool.ordered_map(make_failing, (), range(3), workers))


def make_nothing() -> Callable[[int], int]:
    raise ValueError("no tokenizer here")


@pytest.mark.parametrize("workers", [1, 2])
def test_work_that_cannot_begin_says_why(workers: int) -> None:
    with pytest.raises(ValueError, match="no tokenizer here"):
        list(pool.ordered_map(make_nothing, (), range(3), workers))


def test_error_of_the_items_is_raised_as_it_is() -> None:
    """An error while the items are read is raised unchanged, and is not taken for a killed
    process.
    """

    def items() -> Iterator[int]:
        yield 0
        raise EOFError("the file is cut")

    with pytest.raises(EOFError, match="the file is cut"):
        list(pool.ordered_map(make_square, (0,), items(), 2))

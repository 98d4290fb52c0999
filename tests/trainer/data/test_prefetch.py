"""The next batch is made in a thread during the step, and an error in the thread reaches
the loop.
"""

from __future__ import annotations

import threading

import pytest

from trainer.data.prefetch import Prefetch

LIMIT_SECONDS = 60.0


def test_batches_come_in_order_and_each_is_made_once() -> None:
    made: list[int] = []
    prefetch = Prefetch(lambda update: made.append(update) or update * 10, end=5)
    assert [prefetch.take(update) for update in range(5)] == [0, 10, 20, 30, 40]
    assert made == [0, 1, 2, 3, 4]
    prefetch.close()


def test_the_next_batch_is_made_while_the_loop_computes() -> None:
    """The batch of the next step is made while the loop is in its step. Here the loop waits in a
    step until that batch is made.
    """
    next_is_made = threading.Event()

    def make(update: int) -> str:
        if update == 1:
            next_is_made.set()
        return threading.current_thread().name

    prefetch = Prefetch(make, end=3)
    assert prefetch.take(0) == threading.current_thread().name
    assert next_is_made.wait(LIMIT_SECONDS)
    assert prefetch.take(1) == "prefetch"
    prefetch.close()


def test_the_loop_can_ask_for_the_next_batch() -> None:
    """The loop can ask whether its next batch is made, without taking it. It is there, too, if none
    is being made.
    """
    go_on = threading.Event()

    def make(update: int) -> int:
        if update == 1:
            go_on.wait(LIMIT_SECONDS)
        return update

    prefetch = Prefetch(make, end=2)
    assert prefetch.wait(0)
    prefetch.take(0)
    assert not prefetch.wait(0)
    go_on.set()
    assert prefetch.wait(LIMIT_SECONDS)
    assert prefetch.take(1) == 1
    assert prefetch.wait(0)
    prefetch.close()


def test_an_update_asked_for_twice_is_made_twice() -> None:
    """A batch that is asked for again is made again, as the pass that warms up DDP's buckets takes
    the first batch and throws it away.
    """
    prefetch = Prefetch(lambda update: [update], end=9)
    assert [prefetch.take(update) for update in (4, 4, 5, 4, 6)] == [[4], [4], [5], [4], [6]]
    prefetch.close()


def test_an_error_of_the_thread_reaches_the_loop() -> None:
    def make(update: int) -> int:
        if update == 2:
            raise OSError("the disk has gone")
        return update

    prefetch = Prefetch(make, end=9)
    assert [prefetch.take(update) for update in (0, 1)] == [0, 1]
    with pytest.raises(OSError, match="the disk has gone"):
        prefetch.take(2)
    prefetch.close()


def test_the_end_does_not_wait_for_a_read_that_hangs() -> None:
    """Closing does not wait for a batch whose read hangs."""
    hangs, go_on, is_over = threading.Event(), threading.Event(), threading.Event()

    def make(update: int) -> int:
        if update == 1:
            hangs.set()
            go_on.wait(LIMIT_SECONDS)
            is_over.set()
        return update

    prefetch = Prefetch(make, end=9)
    prefetch.take(0)
    assert hangs.wait(LIMIT_SECONDS)
    prefetch.close()
    assert not is_over.is_set()  # it would be, if closing had waited for the read
    go_on.set()

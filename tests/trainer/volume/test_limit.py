"""An act on a volume that may never answer."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from trainer.volume import limit
from trainer.volume.limit import Interrupted, within


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """An act that waits for it does not end before the test has."""
    event = threading.Event()
    yield event
    event.set()


def test_result_and_error_are_handed_on() -> None:
    """What the act returns or raises is what the caller gets, an error of time included."""
    assert within(60, lambda: 7, lambda: False) == 7

    def fail() -> None:
        raise TimeoutError("of the volume's own")

    with pytest.raises(TimeoutError, match="of the volume's own"):
        within(60, fail, lambda: False)


def test_end_between_two_looks_is_no_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """An act that ended just after a look was called one that had not ended within the limit."""
    done = Future[int].done

    def done_a_moment_later(future: Future[int]) -> bool:
        concurrent.futures.wait([future])
        return done(future)

    may_end = threading.Event()
    threading.Timer(0.2, may_end.set).start()

    def act() -> int:
        may_end.wait()
        return 7

    monkeypatch.setattr(limit.Future, "done", done_a_moment_later)
    assert within(60, act, lambda: False) == 7


def test_act_without_end_is_given_up(stuck: threading.Event) -> None:
    """A system call that hangs holds its caller up for the limit and no longer."""
    with pytest.raises(TimeoutError):
        within(0, stuck.wait, lambda: False)


def test_wait_ends_when_interrupted(stuck: threading.Event) -> None:
    """A stop or a lost round is heard while the volume does not answer."""
    with pytest.raises(Interrupted):
        within(60, stuck.wait, lambda: True)

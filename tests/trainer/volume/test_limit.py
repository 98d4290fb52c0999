"""A limit of time for an operation on a volume that may never answer."""

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
    """Yield an event that is set at the end of the test. An operation that waits for it never ends
    before.
    """
    event = threading.Event()
    yield event
    event.set()


def test_result_and_error_are_handed_on() -> None:
    """The caller gets what the operation returns or raises, also if that is a `TimeoutError` of its
    own.
    """
    assert within(60, lambda: 7, lambda: False) == 7

    def fail() -> None:
        raise TimeoutError("of the volume's own")

    with pytest.raises(TimeoutError, match="of the volume's own"):
        within(60, fail, lambda: False)


def test_end_between_two_looks_is_no_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation that ends just after it was looked at has not exceeded the limit."""
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
    """An operation that hangs holds up its caller until the limit and no longer."""
    with pytest.raises(TimeoutError):
        within(0, stuck.wait, lambda: False)


def test_wait_ends_when_interrupted(stuck: threading.Event) -> None:
    """The wait ends early when the caller is interrupted, so that a stop or a lost round is heard
    while the volume does not answer.
    """
    with pytest.raises(Interrupted):
        within(60, stuck.wait, lambda: True)

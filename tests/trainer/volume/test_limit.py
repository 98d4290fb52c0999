"""An act on a volume that may never answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

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


def test_act_without_end_is_given_up(stuck: threading.Event) -> None:
    """A system call that hangs holds its caller up for the limit and no longer."""
    with pytest.raises(TimeoutError):
        within(0, stuck.wait, lambda: False)


def test_wait_ends_when_interrupted(stuck: threading.Event) -> None:
    """A stop or a lost round is heard while the volume does not answer."""
    with pytest.raises(Interrupted):
        within(60, stuck.wait, lambda: True)

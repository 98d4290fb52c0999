"""Waits that have a limit and say what they wait for."""

import time
from collections.abc import Callable

from infra.kube.errors import TaskError, UnreachableError
from infra.kube.say import say, shorten

HEARTBEAT_SECONDS = 20.0
POLL_SECONDS = 0.5
STUCK_SECONDS = 20.0  # how long a reason that rarely mends itself is borne
SETTLED_SECONDS = 5.0  # so long a state has to last that counts as the end of a change


def wait_for(what: str, ask: Callable[[], str], limit_seconds: float, limit_name: str = "") -> None:
    """Ask until the answer is empty; say each new answer, and the last one every 20 s.

    Args:
        what: what is waited for, for the messages.
        ask: returns the state that keeps us waiting, in words; empty when the wait is over.
            It may raise TaskError to end the wait with a failure. While the API server does not
            answer (UnreachableError) the wait goes on and says so.
        limit_seconds: how long at most.
        limit_name: the setting that holds the limit, for the message.

    Raises:
        TaskError: the limit is reached.
    """
    start = time.monotonic()
    told, said = start, ""
    while True:
        try:
            state = ask()
        except UnreachableError as reason:
            state = f"the API server does not answer: {reason}"
        if not state:
            return
        now = time.monotonic()
        if now - start >= limit_seconds:
            name = f" ({limit_name})" if limit_name else ""
            raise TaskError(f"waited {limit_seconds:.0f} s{name} for {what}; {shorten(state, 800)}")
        if state != said or now - told >= HEARTBEAT_SECONDS:
            say(f"{now - start:.0f} s: waiting for {what}; {shorten(state, 400)}")
            told, said = now, state
        time.sleep(POLL_SECONDS)


class Patience:
    """Bears the same kind of trouble for a while."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._since: float | None = None

    def is_over(self, trouble: str) -> bool:
        """Whether there has been trouble at each call for longer than the given time."""
        if not trouble:
            self._since = None
            return False
        now = self._clock()
        if self._since is None:
            self._since = now
        return now - self._since >= self._seconds

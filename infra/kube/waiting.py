"""Waits for a condition, with a time limit, and prints why the wait goes on."""

import time
from collections.abc import Callable

from infra.kube.errors import TaskError, UnreachableError
from infra.kube.say import say, shorten

HEARTBEAT_SECONDS = 20.0
POLL_SECONDS = 0.5
STUCK_SECONDS = 20.0  # for how long a wait tolerates a problem that rarely solves itself
SETTLED_SECONDS = 5.0  # how long a state has to last before it counts as settled


def wait_for(what: str, ask: Callable[[], str], limit_seconds: float, limit_name: str = "") -> None:
    """Call `ask` until it returns an empty text.

    Each new answer is printed. An answer that stays the same is printed again every 20 s.

    Args:
        what: what the caller waits for, for the messages.
        ask: returns why the wait has to go on, for the messages; empty: the wait is over. It may
            raise TaskError to end the wait with a failure. If it raises UnreachableError, the wait
            goes on and prints that the API server does not answer.
        limit_seconds: the longest wait.
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
    """Tells when a problem has lasted for longer than a given time without a pause."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._since: float | None = None

    def is_over(self, trouble: str) -> bool:
        """Whether every call has reported a problem for at least the given time.

        Args:
            trouble: the problem, as text; empty: there is none, so the time starts anew.
        """
        if not trouble:
            self._since = None
            return False
        now = self._clock()
        if self._since is None:
            self._since = now
        return now - self._since >= self._seconds

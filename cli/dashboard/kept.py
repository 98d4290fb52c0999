"""Keeps what a query has found, and repeats the query in the background, but not too often.

A query reads something from the cluster or from the volume.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from infra.kube.errors import ApiError, TaskError, UnreachableError

EXPECTED = (ApiError, OSError, TaskError, UnreachableError, ValueError)
RETRY_SECONDS = 15.0  # after a failed query, the longest least time until the next one
REST = 5  # until the next query passes at least this many times the duration of the last one


@dataclass(frozen=True)
class View:
    """What is known now.

    Args:
        content: what the last successful query has found; None before there was one.
        age_seconds: the age of that content; None before there was one.
        problem: why the newest query failed; empty if it succeeded.
        is_querying: whether a query is under way.
    """

    content: Any = None
    age_seconds: float | None = None
    problem: str = ""
    is_querying: bool = False

    def as_mapping(self) -> dict[str, Any]:
        """Return the view for JSON, without the content."""
        return {
            "age_seconds": self.age_seconds,
            "problem": self.problem,
            "is_querying": self.is_querying,
        }


def in_thread(work: Callable[[], None]) -> None:
    """Do the work in a daemon thread, which does not keep the program from ending."""
    threading.Thread(target=work, daemon=True).start()


class Kept:
    """A query that is repeated, and what it has found.

    Args:
        query: makes the query; it raises one of EXPECTED if it fails.
        least_seconds: the least time between the end of a query and the next one.
        clock: returns the time of a monotonic clock, in seconds.
        start: does work in the background.
    """

    def __init__(
        self,
        query: Callable[[], Any],
        least_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        start: Callable[[Callable[[], None]], None] = in_thread,
    ) -> None:
        self._query, self._least_seconds = query, least_seconds
        self._clock, self._start = clock, start
        self._lock = threading.Lock()
        self._content: Any = None
        self._seen_at: float | None = None
        self._problem = ""
        self._is_querying = False
        self._next_at = float("-inf")

    def see(self) -> View:
        """Return at once what is known, and begin a new query if it is time for one."""
        with self._lock:
            begins = not self._is_querying and self._clock() >= self._next_at
            self._is_querying = self._is_querying or begins
        if begins:
            self._start(self._take)
        with self._lock:
            age = None if self._seen_at is None else self._clock() - self._seen_at
            return View(self._content, age, self._problem, self._is_querying)

    def _take(self) -> None:
        begin, content, problem = self._clock(), None, "the query failed; the terminal says why"
        try:
            content, problem = self._query(), ""
        except EXPECTED as reason:
            problem = str(reason) or type(reason).__name__
        finally:  # also after an unexpected error: otherwise no query would ever begin again
            with self._lock:
                now = self._clock()
                if not problem:
                    self._content, self._seen_at = content, now
                self._problem, self._is_querying = problem, False
                least = min(self._least_seconds, RETRY_SECONDS) if problem else self._least_seconds
                self._next_at = now + max(least, REST * (now - begin))

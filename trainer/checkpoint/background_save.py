"""Checkpoints written while training goes on, at most one at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent import futures
from typing import Any


class BackgroundSave:
    """Runs one piece of work after the other in a thread, which is kept: starting one takes long.

    What this rank's work came to is told to all ranks, so it has to be a small JSON mapping.
    """

    def __init__(self) -> None:
        self._threads = futures.ThreadPoolExecutor(1, "checkpoint")
        self._work: futures.Future[dict[str, Any]] | None = None

    def start(self, work: Callable[[], dict[str, Any]]) -> None:
        """Begin; what was before must have ended, and its result be taken."""
        assert self._work is None
        self._work = self._threads.submit(work)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait at most so long; returns whether nothing is being done any more."""
        return self._work is None or not futures.wait([self._work], seconds).not_done

    def result(self) -> dict[str, Any]:
        """What the work has returned, {} where there was none.

        An OSError is a result too: {"errno", "error"}. Any other exception is raised here.
        """
        work, self._work = self._work, None
        try:
            return {} if work is None else work.result()
        except OSError as error:
            return {"errno": error.errno, "error": str(error)[:300]}

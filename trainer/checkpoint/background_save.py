"""Runs the writing of a checkpoint in a thread while training continues, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent import futures
from typing import Any


class BackgroundSave:
    """Runs one piece of work after the other in one thread, because starting a thread takes long.

    The result of this rank's work is sent to all ranks, so it must be small.
    """

    def __init__(self) -> None:
        self._threads = futures.ThreadPoolExecutor(1, "checkpoint")
        self._work: futures.Future[dict[str, Any]] | None = None

    def start(self, work: Callable[[], dict[str, Any]]) -> None:
        """Begin `work`. The work before it must have ended, and its result must have been taken."""
        assert self._work is None
        self._work = self._threads.submit(work)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait at most `seconds`, or without limit. Returns whether no work is running any more."""
        return self._work is None or not futures.wait([self._work], seconds).not_done

    def result(self) -> dict[str, Any]:
        """Take the result of the work, or {} if there was no work.

        If the work raised an OSError, the result is {"errno", "error"}. Any other exception of the
        work is raised here.
        """
        work, self._work = self._work, None
        try:
            return {} if work is None else work.result()
        except OSError as error:
            return {"errno": error.errno, "error": str(error)}

"""Checkpoints written while training goes on, at most one at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent import futures


class BackgroundSave:
    """Runs one write after the other in a thread, which is kept: starting one takes long."""

    def __init__(self) -> None:
        self._threads = futures.ThreadPoolExecutor(1, "checkpoint")
        self._write: futures.Future[None] | None = None
        self.failure: OSError | None = None
        """Why a write failed; stays set. Another exception than OSError is a mistake of ours."""
        self._mistake: BaseException | None = None

    def start(self, write: Callable[[], None]) -> None:
        """Begin a write; the one before must have been waited for."""
        assert self._write is None
        self._write = self._threads.submit(self._run, write)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait at most so long; returns whether nothing is being written any more."""
        if self._write is not None:
            if futures.wait([self._write], seconds).not_done:
                return False
            self._write = None
        if self._mistake is not None:
            raise self._mistake
        return True

    def _run(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            self.failure = error
        except BaseException as error:
            self._mistake = error

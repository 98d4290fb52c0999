"""Checkpoints written while training goes on, at most one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable


class BackgroundSave:
    """Runs one write after the other, each in a thread of its own."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self.failure: OSError | None = None
        """Why a write failed; stays set. Another exception than OSError is a mistake of ours."""
        self._mistake: BaseException | None = None

    def start(self, write: Callable[[], None]) -> None:
        """Begin a write; the one before must have been waited for."""
        assert self._thread is None
        self._thread = threading.Thread(target=self._run, args=(write,), name="checkpoint")
        self._thread.start()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait at most so long; returns whether nothing is being written any more."""
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                return False
            self._thread = None
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

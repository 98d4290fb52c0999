"""Checkpoints written while training goes on, at most one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable


class BackgroundSave:
    """Runs one write after the other, in a thread of its own or in the caller's."""

    def __init__(self, asynchronous: bool):
        self._asynchronous = asynchronous
        self._thread: threading.Thread | None = None
        self.failure: OSError | None = None
        """Why a write failed; stays set. Another exception than OSError is a mistake of ours."""
        self._mistake: BaseException | None = None

    def start(self, write: Callable[[], None]) -> None:
        """Begin a write; the one before must have been waited for."""
        assert self._thread is None
        if not self._asynchronous:
            self._run(write)
            self.wait()
            return
        self._thread = threading.Thread(target=self._run, args=(write,), name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Return when nothing is being written any more; see `failure`."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._mistake is not None:
            raise self._mistake

    def _run(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            self.failure = error
        except BaseException as error:
            self._mistake = error

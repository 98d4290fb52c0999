"""Makes the batches of the next update in a thread, while the current update is computed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Made = TypeVar("Made")


class Prefetch(Generic[Made]):
    """Calls `make(update)` one update ahead.

    If `make` raises an error in the thread, the `take` for that update raises it. The thread is a
    daemon, so the process can end without waiting for it.
    """

    def __init__(self, make: Callable[[int], Made], end: int):
        """`make` depends on the update alone. `end` is 1 more than the last update."""
        self._make, self._end = make, end
        self._wanted: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._made: queue.SimpleQueue[Made | BaseException] = queue.SimpleQueue()
        self._ahead: int | None = None  # the update that the thread has made or is making
        self._thread: threading.Thread | None = None

    def take(self, update: int) -> Made:
        """Return the result of `make` for `update`, and begin the next update.

        An error of `make` is raised here.
        """
        if self._ahead == update:
            made, self._ahead = self._made.get(), None
            if isinstance(made, BaseException):
                raise made
        else:
            made = self._make(update)
        if self._ahead is None and update + 1 < self._end:
            self._begin(update + 1)
        return made

    def close(self) -> None:
        """Tell the thread to end. This method does not wait for it."""
        self._wanted.put(None)

    def _begin(self, update: int) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="prefetch", daemon=True)
            self._thread.start()
        self._ahead = update
        self._wanted.put(update)

    def _run(self) -> None:
        while (update := self._wanted.get()) is not None:
            try:
                made: Made | BaseException = self._make(update)
            except BaseException as error:  # `take` raises it in the training loop
                made = error
            self._made.put(made)

"""Makes the batches of the next update in a thread, while the current update is computed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent import futures
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
        self._wanted: queue.SimpleQueue[tuple[int, futures.Future[Made]] | None]
        self._wanted = queue.SimpleQueue()
        self._ahead: tuple[int, futures.Future[Made]] | None = None  # made, or being made
        self._thread: threading.Thread | None = None

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` for the thread. Returns whether it is making nothing any more."""
        return self._ahead is None or not futures.wait([self._ahead[1]], seconds).not_done

    def take(self, update: int) -> Made:
        """Return the result of `make` for `update`, and begin the next update.

        An error of `make` is raised here.
        """
        if self._ahead is not None and self._ahead[0] == update:
            future, self._ahead = self._ahead[1], None
            made = future.result()
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
        self._ahead = update, futures.Future[Made]()
        self._wanted.put(self._ahead)

    def _run(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            update, future = wanted
            try:
                future.set_result(self._make(update))
            except BaseException as error:  # `take` raises it in the training loop
                future.set_exception(error)

"""Appends events to a file from a separate thread, so that training never waits for the volume.

If the volume is full, slow or gone, events are lost and nothing else. The first error is printed,
and later events are still tried.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainer.events.clock import stamped
from trainer.events.event import Event, Name, to_line

HEARTBEAT_SECONDS = 10.0
CLOSE_SECONDS = 2.0
_MOST_WAITING = 10_000
"""How many events may wait for a slow volume; further ones are dropped."""


class EventLog:
    """Appends the events of one process to a file, to which other processes may append too."""

    def __init__(
        self, path: Path | None, say: Callable[[str], None], heartbeat_seconds: float | None = None
    ):
        """The file is not opened before the first event.

        Args:
            path: The path of the file; with None, nothing is written.
            say: Prints a line; it is called once if events cannot be written.
            heartbeat_seconds: After the first event, write an `alive` event whenever there was no
                other event for so many seconds; None for never.
        """
        self._path, self._say, self._heartbeat_seconds = path, say, heartbeat_seconds
        self._events: queue.Queue[Event | None] = queue.Queue(_MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._descriptor: int | None = None
        self._has_failed = self._is_closed = False

    def write(self, name: Name, **values: Any) -> None:
        """Write an event that happens now. This takes microseconds, and raises no error."""
        if self._path is None or self._is_closed:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="events", daemon=True)
            self._thread.start()
        try:
            self._events.put_nowait(stamped(name, values))
        except queue.Full:
            self._failed("the volume is too slow")

    def close(self, limit_seconds: float = CLOSE_SECONDS) -> None:
        """Write the waiting events, for at most `limit_seconds`. Later events are not written."""
        thread, self._is_closed = self._thread, True
        if thread is None or not thread.is_alive():
            return
        try:
            self._events.put_nowait(None)
        except queue.Full:
            return  # the thread ends with the process
        thread.join(limit_seconds)

    def _serve(self) -> None:
        while True:
            try:
                event = self._events.get(timeout=self._heartbeat_seconds)
            except queue.Empty:
                event = stamped(Name.ALIVE, {})
            if event is None:
                break
            self._append(event)
        self._close_file()

    def _append(self, event: Event) -> None:
        try:
            line = to_line(event)
            written = self._put(line)
        except (OSError, ValueError) as error:  # ValueError: a number that is not finite
            self._failed(str(error))
            return
        if written < len(line):
            self._failed("the volume is full")

    def _put(self, line: bytes) -> int:
        """Write at the end of the file, and return how many bytes were written.

        An open file may fail forever although its path can be opened again, for example after the
        restart of an NFS server (ESTALE). So the file is opened again after each error.

        Raises:
            OSError: nothing was written.
        """
        was_open = self._descriptor is not None
        try:
            return self._write_once(line)
        except OSError:
            self._close_file()
            if not was_open:
                raise
        return self._write_once(line)

    def _write_once(self, line: bytes) -> int:
        if self._descriptor is None:
            self._descriptor = self._open()
        return os.write(self._descriptor, line)

    def _close_file(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with suppress(OSError):  # an error of an earlier write, which was reported then
                os.close(descriptor)

    def _open(self) -> int:
        path = self._path
        assert path is not None
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def _failed(self, reason: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._say(
                f"warning: {self._path}: events cannot be written ({reason}); training goes on, "
                "and `goodput` will know less of this time"
            )

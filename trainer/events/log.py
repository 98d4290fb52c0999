"""Appends events to a file, from a thread of its own: training never waits for the volume.

A volume that is full, slow or gone costs events and nothing else: the first error is said, and what
comes later is tried all the same.
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
"""Events that wait for a slow volume; further ones are dropped."""


class EventLog:
    """One process' way to an event file, which other processes may append to as well."""

    def __init__(
        self, path: Path | None, say: Callable[[str], None], heartbeat_seconds: float | None = None
    ):
        """Nothing is opened before the first event.

        Args:
            path: the file; None: nothing is written.
            say: prints a line; called once if events cannot be written.
            heartbeat_seconds: after the first event, say that often that this process lives.
        """
        self._path, self._say, self._heartbeat_seconds = path, say, heartbeat_seconds
        self._events: queue.Queue[Event | None] = queue.Queue(_MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._descriptor: int | None = None
        self._has_failed = self._is_closed = False

    def write(self, name: Name, **values: Any) -> None:
        """Note that something happens now. Takes microseconds, and raises nothing."""
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
        """Write what waits, for at most so long, and end. Later events are not written."""
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
        """Write at the end of the file; returns how many bytes. Raises OSError.

        A file that was opened before may be out of reach for ever while its name is not, as after
        an NFS server has come back (ESTALE). So it is opened again after each error.
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
            with suppress(OSError):  # an error of a write before, which was seen there
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

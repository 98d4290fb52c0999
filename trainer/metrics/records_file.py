"""Appends records to a file on a volume that may fail for a while."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


class RecordsFile:
    """Appends lines to a file, and keeps in memory what the volume has not taken yet.

    An error of the volume ends nothing: a restart of the run would repeat all steps since the
    newest checkpoint, only because some numbers could not be written.
    """

    def __init__(self, path: Path, say: Callable[[str], None]):
        """`say` prints a line when writing fails, and no further one until it works again."""
        self._path, self._say = path, say
        self._descriptor: int | None = None
        self._waiting, self._fails = b"", False

    def append(self, line: bytes) -> None:
        """Append a line with its end."""
        self._waiting += line
        self.flush()

    def flush(self) -> None:
        """Try to write everything that was appended."""
        try:
            self._write()
        except OSError as error:
            # After the restart of an NFS server, an open file may fail forever although its path
            # can be opened again. So the file is opened again after each error.
            self._close()
            if not self._fails:
                self._say(
                    f"warning: {self._path} cannot be written ({error}); training goes on, and "
                    "what is missing is written when the volume works again"
                )
            self._fails = True
        else:
            self._fails = False

    def close(self) -> None:
        """Try to write everything, and close the file. It is opened again by the next `append`."""
        self.flush()
        self._close()

    def _write(self) -> None:
        if self._descriptor is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o644)
        while self._waiting:
            written = os.write(self._descriptor, self._waiting)
            self._waiting = self._waiting[written:]

    def _close(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with suppress(OSError):  # the same error as that of the write
                os.close(descriptor)

"""A file to which whole lines are appended, and which is replaced by a new one when it is large.

Two processes may append to one file, such as a pod that is still ending and the pod that takes its
place. So a full file is renamed to a name that nobody else chooses. Before a write, each process
checks whether the path still leads to the file that it has open. This needs no lock, which a volume
may not have. If both processes rename at once, one of the old files is short, but no line is lost.
"""

from __future__ import annotations

import errno
import os
import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

LARGEST_BYTES = 16 << 20
OLD_FILES = 4
_TIME_FORMAT = "%Y%m%dT%H%M%S.%fZ"


class RotatingFile:
    """One file, and beside it at most `old_files` former ones, named `<name>.<time>-<random>`.

    Args:
        path: The path of the file; its folder is made if it is missing.
        largest_bytes: A file does not grow beyond this size, unless one write is larger.
        old_files: How many former files are kept.
    """

    def __init__(
        self, path: Path, largest_bytes: int = LARGEST_BYTES, old_files: int = OLD_FILES
    ) -> None:
        self._path, self._largest_bytes, self._old_files = path, largest_bytes, old_files
        self._file: int | None = None
        self._is_torn = False

    def append(self, lines: bytes) -> int:
        """Write whole lines at the end.

        Returns how many bytes were written: all, or fewer if the volume is full. A line that was
        cut off has to be given again from its beginning.

        Raises:
            OSError: none of `lines` was written.
        """
        try:
            file = self._open(len(lines))
            if self._is_torn:
                os.write(file, b"\n")  # ends a line that was cut off
                self._is_torn = False
            written = os.write(file, lines)
        except OSError:
            self.close()
            raise
        self._is_torn = written > 0 and lines[written - 1 : written] != b"\n"
        return written

    def sync(self) -> None:
        """Bring what was written to the disk.

        Raises:
            OSError: this failed, and what was written may be lost.
        """
        if self._file is not None:
            try:
                os.fsync(self._file)
            except OSError as error:
                if error.errno == errno.EINVAL:  # this kind of file has no disk
                    return
                self.close()
                raise

    def close(self) -> None:
        """Close the file; the next `append` opens it again."""
        if self._file is not None:
            file, self._file = self._file, None
            with suppress(OSError):  # an error of an earlier write, which that write reports
                os.close(file)

    def _open(self, more_bytes: int) -> int:
        """Return the descriptor of the file to which `more_bytes` have to be written now."""
        if self._file is not None and not self._is_current(self._file):
            self.close()
        file = self._open_current() if self._file is None else self._file
        size = os.fstat(file).st_size
        if size and size + more_bytes > self._largest_bytes:
            self._give_way()
            self.close()
            file = self._open_current()
        return file

    def _open_current(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            self._file = os.open(self._path, flags, 0o644)
        except FileNotFoundError:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, flags, 0o644)
        self._is_torn = self._ends_in_a_piece(self._file)
        return self._file

    def _ends_in_a_piece(self, file: int) -> bool:
        """Whether the file ends without a newline, for example because its machine was lost.

        It may also end in a line that another process is writing; then the file gets an empty line.
        """
        if not os.fstat(file).st_size:
            return False
        with self._path.open("rb") as there:
            if not os.path.sameopenfile(there.fileno(), file):
                return False  # another process has just renamed the file
            there.seek(-1, os.SEEK_END)
            return there.read(1) != b"\n"

    def _is_current(self, file: int) -> bool:
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False
        mine = os.fstat(file)
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def _give_way(self) -> None:
        name = f"{self._path.name}.{self._next_time():{_TIME_FORMAT}}-{uuid.uuid4().hex[:4]}"
        with suppress(FileNotFoundError):  # another process was faster
            self._path.rename(self._path.with_name(name))
        for path in self._former()[self._old_files :]:
            path.unlink(missing_ok=True)

    def _former(self) -> list[Path]:
        """Return the paths of the former files, the newest first."""
        return sorted(self._path.parent.glob(f"{self._path.name}.*"), reverse=True)

    def _next_time(self) -> datetime:
        """Return the time for the name of a former file: now, or later if a clock was ahead.

        Then it is just after the time of the newest former file. The names tell which file is the
        oldest, and that file is removed first.
        """
        now = datetime.now(UTC)
        for path in self._former():
            text = path.name.removeprefix(f"{self._path.name}.").rpartition("-")[0]
            with suppress(ValueError):  # a file with another kind of name
                newest = datetime.strptime(text, _TIME_FORMAT).replace(tzinfo=UTC)
                return max(now, newest + timedelta(microseconds=1))
        return now

"""Reads a file that is one line without an end, which a program writes anew with each state.

A line whose end has not come may go on: `step 1` may become `step 12`. It is whole once it stays as
it is from one look to the next, or is replaced by a text that does not begin with it.
"""

from __future__ import annotations

from pathlib import Path

_MOST_BYTES = 4096  # of the line, as all of it is read at each look


class StateLine:
    """What such a file says; of a file with several lines, nothing.

    Args:
        path: of the file, which need not be there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._line = b""  # at the last look; it may go on
        self._told = b""

    def skip(self) -> None:
        """Leave out what the file says by now."""
        self._line = self._told = _only_line(self._text())

    def new_lines(self, *, is_over: bool = False) -> list[bytes]:
        """The lines that are whole by now and were not told before.

        Args:
            is_over: whether nobody writes any more, so that what is there is whole.
        """
        before, text = self._line, self._text()
        self._line = _only_line(text)
        is_whole = text == before or not text.startswith(before)
        found = [before] if before and is_whole else []
        found += [self._line] if self._line and is_over else []
        new = list[bytes]()
        for line in found:
            if line != self._told:
                self._told = line
                new.append(line)
        return new

    def without_told(self, lines: list[bytes]) -> list[bytes]:
        """The lines of the file without the first one if it was told before its end came."""
        return lines[1:] if self._told and lines[:1] == [self._told] else lines

    def _text(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                return file.read(_MOST_BYTES + 1)
        except OSError:  # it is not there, or the volume fails, of which others tell
            return b""


def _only_line(text: bytes) -> bytes:
    return text if b"\n" not in text and len(text) <= _MOST_BYTES else b""

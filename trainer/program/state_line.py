"""Reads a file that is one line without a newline, which a program writes anew with each state.

A line without a newline may be incomplete: `step 1` may become `step 12`. It is complete once it
stays the same from one reading to the next, or is replaced by a text that does not begin with it.
"""

from __future__ import annotations

from pathlib import Path

_MOST_BYTES = 4096  # a longer line is ignored, because each reading reads all of it


class StateLine:
    """Reads such a file; a file with several lines has no state.

    Args:
        path: The path of the file, which need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._line = b""  # at the last reading; it may be incomplete
        self._told = b""

    def skip(self) -> None:
        """Skip the state that the file has now."""
        self._line = self._told = _only_line(self._text())

    def new_lines(self, *, is_over: bool = False) -> list[bytes]:
        """Return the lines that are complete by now and were not returned before.

        Args:
            is_over: Whether the program has ended, so that the line in the file is complete.
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
        """Return `lines` without the first one if it was returned before its newline came."""
        return lines[1:] if self._told and lines[:1] == [self._told] else lines

    def _text(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                return file.read(_MOST_BYTES + 1)
        except OSError:  # there is no file, or the volume fails, which is reported elsewhere
            return b""


def _only_line(text: bytes) -> bytes:
    return text if b"\n" not in text and len(text) <= _MOST_BYTES else b""

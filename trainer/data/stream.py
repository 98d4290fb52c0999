"""Writes the tokens of all documents, one after the other, to files that survive a kill.

tokens.bin     the tokens
entries.bin    for each document or passage: tokens, bytes and characters up to its end
progress.json  how much of the first two files is valid, and where the next batch begins

The first two files are only appended to, and are made durable before progress.json is replaced.
After a kill, bytes beyond those that progress.json counts are cut off.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from trainer.checkpoint.durable import write_json
from trainer.data.batches import Place
from trainer.data.encode import Encoded
from trainer.launch.exit_codes import FatalError

TOKENS, ENTRIES, PROGRESS = "tokens.bin", "entries.bin", "progress.json"
ENTRY_BYTES = 24
COMMIT_SECONDS = 2.0


@dataclass(frozen=True)
class Progress:
    """How much of the stream is kept so far.

    Args:
        source: The number of the file that is being read, counted from 0.
        offset, number: Where the next batch of this file begins (`Place`).
        tokens, bytes, characters, entries: The numbers of each in the stream.
        skipped: The number of documents without text.
        own_validation: The number of entries before the publisher's validation split, if it has
            one.
        is_complete: Whether all files are read.
    """

    source: int = 0
    offset: int = 0
    number: int = 0
    tokens: int = 0
    bytes: int = 0
    characters: int = 0
    entries: int = 0
    skipped: int = 0
    own_validation: int | None = None
    is_complete: bool = False

    @property
    def place(self) -> Place:
        """Where the next batch begins in its file."""
        return Place(self.offset, self.number)


def read_progress(directory: Path) -> Progress:
    """Read the progress in `directory`. Without progress.json it is that of an empty stream."""
    try:
        return Progress(**json.loads((directory / PROGRESS).read_text()))
    except FileNotFoundError:
        return Progress()


class TokenStream:
    """Appends encoded batches to the stream, in the order of the calls."""

    def __init__(self, directory: Path, token_bytes: int):
        """Open the stream and cut off what a kill has left behind its valid bytes.

        Args:
            directory: The folder of the stream's three files.
            token_bytes: The size of a token in the file.

        Raises:
            FatalError: A file is shorter than its valid bytes.
        """
        self._directory, self._token_bytes = directory, token_bytes
        self.progress = read_progress(directory)
        sizes = (self.progress.tokens * token_bytes, self.progress.entries * ENTRY_BYTES)
        self._tokens, self._entries = (
            _open_cut(directory / name, size)
            for name, size in zip((TOKENS, ENTRIES), sizes, strict=True)
        )
        self._committed_at = time.monotonic()

    def append(self, encoded: Encoded, **position: Any) -> None:
        """Add a batch. `position` has the fields of `Progress` for the begin of the next batch."""
        progress = self.progress
        before = np.array([progress.tokens, progress.bytes, progress.characters], np.int64)
        ends = before + np.cumsum(encoded.entries, axis=0)
        self._tokens.write(encoded.tokens)
        self._entries.write(ends.astype("<i8").tobytes())
        tokens, size, characters = (int(n) for n in (ends[-1] if len(ends) else before))
        self.progress = dataclasses.replace(
            progress,
            tokens=tokens,
            bytes=size,
            characters=characters,
            entries=progress.entries + len(ends),
            skipped=progress.skipped + encoded.skipped,
            **position,
        )
        if time.monotonic() - self._committed_at >= COMMIT_SECONDS:
            self.commit()

    def mark_validation(self) -> None:
        """Note that the publisher's validation split begins here, unless that is noted already."""
        if self.progress.own_validation is None:
            entries = self.progress.entries
            self.progress = dataclasses.replace(self.progress, own_validation=entries)

    def commit(self) -> None:
        """Make everything that was appended survive a kill and a power cut."""
        for file in (self._tokens, self._entries):
            file.flush()
            os.fsync(file.fileno())
        write_json(self._directory / PROGRESS, dataclasses.asdict(self.progress))
        self._committed_at = time.monotonic()

    def complete(self) -> None:
        """Note that all files are read."""
        self.progress = dataclasses.replace(self.progress, is_complete=True)
        self.commit()

    def close(self) -> None:
        """Close the files."""
        self._tokens.close()
        self._entries.close()


def _open_cut(path: Path, size_bytes: int) -> IO[bytes]:
    """Cut `path` to `size_bytes`, and open it for appending."""
    path.touch()
    there = path.stat().st_size
    if there < size_bytes:
        raise FatalError(
            f"{path} has {there} bytes, and {size_bytes} were written; what was done so far is "
            "thrown away, and the next start begins again"
        )
    os.truncate(path, size_bytes)
    return path.open("ab")

"""Reads files from start to end as batches: pieces of about a megabyte that a worker tokenises.

A batch is the same whatever came before it, and a file can be read from the start of any of its
batches. So a preparation that was killed goes on with the batch after the last one it has kept, and
its result does not differ.
"""

from __future__ import annotations

import errno
import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np

from trainer.data.sources import Source
from trainer.data.tables import open_zstd, table_texts
from trainer.launch.exit_codes import FatalError, RetryableError

BATCH_BYTES = 2**20
FAILS_FOR_A_WHILE = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT)
"""So a storage answers that may be there again later."""
_LONGEST_DOCUMENT_BYTES = 2**26
# A place where every usual tokenizer begins a new word: a newline alone between two characters that
# are no space. So the tokens of the parts are those of the whole. In UTF-8, the bytes left out are
# those with which the spaces of Unicode end and begin.
SAFE_NEWLINE = re.compile(
    rb"[!-~\x8b-\x9e\xa1-\xa7\xaa-\xae\xb0-\xbf]\n(?=[!-~\xc3-\xe0\xe4-\xf4])"
)
_SEARCHED_BYTES = 2**16
# llm.c's dev/data/data_common.py: magic number of a token file and bytes of each token.
_LLM_C_MAGIC = {20240520: 2, 20240801: 4}
_LLM_C_HEADER_BYTES = 1024


@dataclass(frozen=True)
class Place:
    """Where a batch begins: bytes, rows or tokens into a file, and lines or rows before it."""

    offset: int = 0
    number: int = 0


@dataclass(frozen=True)
class Batch:
    """A piece of one file.

    Args:
        source: the file.
        place: where the batch begins.
        next: where the batch after it begins.
        content: bytes of text, lines or tokens, or the rows of a table.
        is_last: whether the file ends with it.
        token_bytes: of each token, where the content is tokens.
    """

    source: Source
    place: Place
    next: Place
    content: bytes | list[str | None]
    is_last: bool
    token_bytes: int = 0


def read_batches(
    source: Source, place: Place, text_field: str, separator: str | None
) -> Iterator[Batch]:
    """The batches of a file from `place` on.

    Raises:
        FatalError: the file cannot be read or is not what it should be; the message names it.
        RetryableError: the storage fails, perhaps for a while.
    """
    try:
        if source.format == "text":
            yield from _text(source, place, separator.encode() if separator else None)
        elif source.format == "jsonl":
            yield from _lines(source, place)
        elif source.format == "bin":
            yield from _tokens(source, place)
        else:
            yield from _rows(source, place, text_field)
    except (OSError, EOFError, zlib.error) as error:
        fails_for_a_while = isinstance(error, OSError) and error.errno in FAILS_FOR_A_WHILE
        kind = RetryableError if fails_for_a_while else FatalError
        raise kind(f"{source.path}: cannot be read: {error}") from error


def open_text(path: Path) -> IO[bytes]:
    """A file's content, decompressed where its name ends in .gz or .zst."""
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    if path.suffix == ".zst":
        return open_zstd(path)
    return path.open("rb")


def _text(source: Source, place: Place, separator: bytes | None) -> Iterator[Batch]:
    """Pieces that end at a separator, or, without one, where no token can go across."""

    def end_of_piece(buffer: bytes) -> int:
        if separator is None:
            return _last_safe_end(buffer)
        found = buffer.rfind(separator)
        return found + len(separator) if found >= 0 else 0

    yield from _cut(source, place, end_of_piece, "dataset.document_separator")


def _lines(source: Source, place: Place) -> Iterator[Batch]:
    yield from _cut(source, place, lambda buffer: buffer.rfind(b"\n") + 1, "end of a line")


def _cut(
    source: Source, place: Place, end_of_piece: Callable[[bytes], int], what: str
) -> Iterator[Batch]:
    """Pieces of BATCH_BYTES, or more where they hold no end; `end_of_piece` finds it (0: none).

    The last one may be empty: each file has one, by which the files are counted.
    How much is looked at depends on where the piece begins and on nothing else.
    """
    with open_text(source.path) as file:
        skip_bytes(file, place.offset)
        buffer, wanted, is_last = b"", BATCH_BYTES, False
        while not is_last:
            while len(buffer) < wanted and (new := file.read(wanted - len(buffer))):
                buffer += new
            is_last = len(buffer) < wanted
            end = len(buffer) if is_last else end_of_piece(buffer)
            if not end and not is_last:
                wanted += BATCH_BYTES
                if wanted > _LONGEST_DOCUMENT_BYTES:
                    raise FatalError(
                        f"{source.path}: there is no {what} in the {len(buffer)} bytes after byte "
                        f"{place.offset}; is that the right setting for this file?"
                    )
                continue
            piece, buffer, wanted = buffer[:end], buffer[end:], BATCH_BYTES
            following = Place(place.offset + end, place.number + piece.count(b"\n"))
            yield Batch(source, place, following, piece, is_last)
            place = following


def _last_safe_end(buffer: bytes) -> int:
    """Just after the last safe newline; else the last newline; else the last whole character."""
    begin = max(0, len(buffer) - _SEARCHED_BYTES)
    ends = [found.end() for found in SAFE_NEWLINE.finditer(buffer, begin)]
    if ends:
        return ends[-1]
    if (end := buffer.rfind(b"\n") + 1) > 0:
        return end
    end = len(buffer) - 1
    while end and buffer[end] & 0xC0 == 0x80:  # inside a character of UTF-8
        end -= 1
    return end


def skip_bytes(file: IO[bytes], count: int) -> None:
    """Go to byte `count`; compressed files are read up to there."""
    if count and not isinstance(file, gzip.GzipFile) and file.seekable():
        file.seek(count)
        return
    while count:
        count -= len(file.read(min(count, BATCH_BYTES)))


def _rows(source: Source, place: Place, column: str) -> Iterator[Batch]:
    """Rows of a parquet or arrow file, about BATCH_BYTES of text at a time."""
    rows: list[str | None] = []
    size, first = 0, place.number
    for texts in table_texts(source, place.number, column):
        for text in texts:
            rows.append(text)
            size += len(text or "")
            if size >= BATCH_BYTES:
                number = first + len(rows)
                yield Batch(source, Place(0, first), Place(0, number), rows, is_last=False)
                rows, size, first = [], 0, number
    yield Batch(source, Place(0, first), Place(0, first + len(rows)), rows, is_last=True)


def _tokens(source: Source, place: Place) -> Iterator[Batch]:
    """Tokens of nanoGPT's (uint16, no header) or llm.c's (header) files."""
    size = source.path.stat().st_size
    with source.path.open("rb") as file:
        header = [int(word) for word in np.frombuffer(file.read(12) if size >= 12 else b"", "<i4")]
        width, start, count = 2, 0, size // 2
        if header and header[0] in _LLM_C_MAGIC:
            width, start, count = _LLM_C_MAGIC[header[0]], _LLM_C_HEADER_BYTES, header[2]
        if start + count * width != size:
            raise FatalError(
                f"{source.path}: has {size} bytes, and {count} tokens of {width} bytes after a "
                f"header of {start} bytes would be {start + count * width}; copy it again"
            )
        offset = place.offset
        file.seek(start + offset * width)
        while True:
            content = file.read(BATCH_BYTES)
            following = offset + len(content) // width
            is_last = following >= count
            yield Batch(source, Place(offset), Place(following), content, is_last, width)
            if is_last:
                return
            offset = following

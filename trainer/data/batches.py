"""Reads files from start to end in batches, pieces of about 1 MB that a worker tokenises.

A batch does not depend on the batches before it, and reading can begin at the start of any batch.
So a preparation that was killed continues after the last batch that it has kept, and has the same
result as one that was not killed.
"""

from __future__ import annotations

import errno
import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np

from trainer.data.sources import COMPRESSIONS, Source
from trainer.data.tables import open_zstd, table_texts
from trainer.launch.exit_codes import FatalError, RetryableError

BATCH_BYTES = 2**20
FAILS_FOR_A_WHILE = (
    errno.EIO,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.ENOTCONN,  # FUSE: its program has ended
    errno.ESHUTDOWN,  # Ceph, Lustre: the server has shut this client out
    errno.EHOSTDOWN,  # SMB
)
"""The errors of a storage that may work again later."""
_LONGEST_DOCUMENT_BYTES = 2**26
# A newline between two characters that are not white space. Every usual tokenizer begins a new
# word there, so the tokens of the two parts together are those of the whole text. The bytes that
# are left out of the two sets are those with which Unicode's spaces end and begin in UTF-8.
SAFE_NEWLINE = re.compile(
    rb"[!-~\x8b-\x9e\xa1-\xa7\xaa-\xae\xb0-\xbf]\n(?=[!-~\xc3-\xe0\xe4-\xf4])"
)
_SEARCHED_BYTES = 2**16
# The magic numbers of token files, each with the bytes of a token (llm.c's
# dev/data/data_common.py).
_LLM_C_MAGIC = {20240520: 2, 20240801: 4}
_LLM_C_HEADER_BYTES = 1024


@dataclass(frozen=True)
class Place:
    """Where a batch begins.

    Args:
        offset: The bytes of text or the tokens before the batch; 0 in tables.
        number: The lines of text or the rows before the batch.
    """

    offset: int = 0
    number: int = 0


@dataclass(frozen=True)
class Batch:
    """A piece of one file.

    Args:
        source: The file.
        place: Where the batch begins.
        next: Where the next batch begins.
        content: The bytes of text, lines or tokens, or the rows of a table.
        is_last: Whether the file ends with this batch.
        token_bytes: The size of a token in bytes; 0 if the content is not tokens.
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
    """Yield the batches of a file from `place` on.

    Raises:
        FatalError: The file cannot be read or has wrong content. The message names the file.
        RetryableError: The storage fails in a way that may end.
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
    """Open a file for reading. Its content is decompressed if its name ends in .gz or .zst.

    Capitals count the same, as for the format of the file.
    """
    if path.suffix.lower() == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    if path.suffix.lower() == ".zst":
        return open_zstd(path)
    return path.open("rb")


def _text(source: Source, place: Place, separator: bytes | None) -> Iterator[Batch]:
    """Yield pieces that end at a separator or, without a separator, where no token is cut."""

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
    """Yield pieces of at most BATCH_BYTES, or longer ones where a piece has no end so early.

    `end_of_piece` returns where a piece ends in a buffer, or 0 if there is no end in it. The last
    piece of a file is always yielded and may be empty, because the files are counted by it. The
    bytes given to `end_of_piece` depend only on where the piece begins.
    """
    with open_text(source.path) as file:
        skip_bytes(file, source.path, place.offset)
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
    """Return the end of the last safe newline, else of the last newline, else of the last whole
    character."""
    begin = max(0, len(buffer) - _SEARCHED_BYTES)
    ends = [found.end() for found in SAFE_NEWLINE.finditer(buffer, begin)]
    if ends:
        return ends[-1]
    if (end := buffer.rfind(b"\n") + 1) > 0:
        return end
    end = len(buffer) - 1
    while end and buffer[end] & 0xC0 == 0x80:  # This byte is inside a character of UTF-8.
        end -= 1
    return end


def skip_bytes(file: IO[bytes], path: Path, count: int) -> None:
    """Go to byte `count` of the content. A compressed file is read up to there.

    Raises:
        FatalError: The content of the file at `path` is shorter now.
    """
    left = count
    if count and not isinstance(file, gzip.GzipFile) and file.seekable():
        left = max(0, count - file.seek(0, os.SEEK_END))
        file.seek(count)
    else:
        while left and (block := file.read(min(left, BATCH_BYTES))):
            left -= len(block)
    if left:
        raise FatalError(
            f"{path}: has {count - left} bytes of content, and {count} were read before; leave it "
            "as it is while it is prepared, and start again"
        )


def _rows(source: Source, place: Place, column: str) -> Iterator[Batch]:
    """Yield the rows of a parquet or arrow file, about BATCH_BYTES of text in each batch."""
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
    """Yield the tokens of a file of nanoGPT (uint16, no header) or of llm.c (with a header)."""
    if source.path.suffix.lower() in COMPRESSIONS:
        raise FatalError(
            f"{source.path}: is compressed; token files are read as they are, so decompress it"
        )
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
        if offset > count:
            raise FatalError(
                f"{source.path}: has {count} tokens, and {offset} were read before; leave it as it "
                "is while it is prepared, and start again"
            )
        file.seek(start + offset * width)
        while True:
            wanted = min(BATCH_BYTES, (count - offset) * width)
            content = file.read(wanted)
            if len(content) < wanted:
                raise FatalError(
                    f"{source.path}: became shorter while it was read; leave it as it is while it "
                    "is prepared, and start again"
                )
            following = offset + len(content) // width
            is_last = following >= count
            yield Batch(source, Place(offset), Place(following), content, is_last, width)
            if is_last:
                return
            offset = following

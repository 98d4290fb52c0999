"""Finds the documents in a batch, and turns them into tokens. Worker processes run this code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from trainer.config import DatasetConfig
from trainer.data.batches import SAFE_NEWLINE, Batch
from trainer.data.tokenizer import Tokenizer, token_dtype
from trainer.launch.exit_codes import FatalError

# A text without documents is divided into passages of at least this size. The validation split can
# begin between any two of them.
_PASSAGE_BYTES = 4096


@dataclass(frozen=True)
class Encoded:
    """The tokens of a batch.

    Args:
        tokens: The tokens in the form in which files hold them.
        entries: Shape (documents or passages, 3): the tokens, bytes and characters of each.
        skipped: The number of documents without text.
    """

    tokens: bytes
    entries: NDArray[np.int64]
    skipped: int


@dataclass(frozen=True)
class Passage:
    """A text that is tokenised by itself, with the information whether it ends a document."""

    text: str
    ends_document: bool


class Encoder:
    """Turns batches into tokens."""

    def __init__(self, tokenizer: Tokenizer, dataset: DatasetConfig, has_documents: bool):
        """If `has_documents`, the tokenizer's end-of-text token is put after each document."""
        self._tokenizer, self._dataset = tokenizer, dataset
        self._dtype = token_dtype(tokenizer.vocab_size)
        self._end = tokenizer.end_of_text if has_documents else None
        self._token_bytes: NDArray[np.int64] | None = None

    def encode(self, batch: Batch) -> Encoded:
        """Turn `batch` into tokens.

        Raises:
            FatalError: The content does not have the format of its file.
        """
        if batch.token_bytes:
            return self._ready_made(batch)
        end = np.array([] if self._end is None else [self._end], self._dtype)
        tokens: list[NDArray[Any]] = []
        entries: list[tuple[int, int, int]] = []
        skipped = 0
        for passage in passages(batch, self._dataset):
            if not passage.text and passage.ends_document and batch.source.format != "text":
                skipped += 1
                continue
            parts = [self._tokenizer.encode(passage.text)]
            if passage.ends_document:
                parts.append(end)
            tokens += parts
            size = len(passage.text.encode())
            entries.append((sum(map(len, parts)), size, len(passage.text)))
        joined = np.concatenate(tokens) if tokens else end[:0]
        return Encoded(
            joined.astype(self._dtype, copy=False).tobytes(),
            np.array(entries, np.int64).reshape(-1, 3),
            skipped,
        )

    def _ready_made(self, batch: Batch) -> Encoded:
        """Check tokens that the file holds already, and find the documents in them."""
        tokens = np.frombuffer(cast(bytes, batch.content), f"<u{batch.token_bytes}")
        if len(tokens) and int(tokens.max()) >= self._tokenizer.vocab_size:
            where = int(np.argmax(tokens >= self._tokenizer.vocab_size))
            raise FatalError(
                f"{batch.source.path}: token number {batch.place.offset + where} is "
                f"{tokens[where]}, and the tokenizer {self._dataset.tokenizer} has only "
                f"{self._tokenizer.vocab_size} tokens; set dataset.tokenizer to the one that made "
                "the file"
            )
        if self._token_bytes is None:
            self._token_bytes = self._tokenizer.token_bytes()
        ends = np.flatnonzero(tokens == self._tokenizer.end_of_text) + 1
        bounds = np.unique(np.concatenate([[0], ends, [len(tokens)]]))
        read_bytes = np.concatenate([[0], np.cumsum(self._token_bytes[tokens])])
        sizes = np.diff(read_bytes[bounds])
        # No code uses the characters of ready-made tokens, so the bytes stand in for them.
        entries = np.stack([np.diff(bounds), sizes, sizes], axis=1).astype(np.int64)
        return Encoded(tokens.astype(self._dtype, copy=False).tobytes(), entries, 0)


def characters_of(batch: Batch, dataset: DatasetConfig) -> NDArray[np.uint32]:
    """Return the different characters of a batch as sorted code points."""
    text = "".join(passage.text for passage in passages(batch, dataset))
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    if not len(points):
        return points
    seen = np.zeros(int(points.max()) + 1, np.bool_)
    seen[points] = True
    return np.flatnonzero(seen).astype(np.uint32)


def passages(batch: Batch, dataset: DatasetConfig) -> Iterator[Passage]:
    """Yield the texts of a batch.

    Raises:
        FatalError: A text cannot be read. The message names the file, and the byte or the line.
    """
    if batch.source.format == "text":
        yield from _of_text(batch, dataset.document_separator)
    elif batch.source.format == "jsonl":
        yield from _of_lines(batch, dataset.text_field)
    else:
        for text in cast(list[str | None], batch.content):
            yield Passage(_without_halves(text or ""), ends_document=True)


def _of_text(batch: Batch, separator: str | None) -> Iterator[Passage]:
    content = cast(bytes, batch.content)
    if separator is not None:
        for text in _decoded(batch, content, 0).split(separator):
            if text.strip():
                yield Passage(text.strip("\n"), ends_document=True)
        return
    start = 0
    while start < len(content):
        found = SAFE_NEWLINE.search(content, start + _PASSAGE_BYTES)
        end = found.end() if found else len(content)
        ends_document = batch.is_last and end == len(content)
        yield Passage(_decoded(batch, content[start:end], start), ends_document)
        start = end
    if batch.is_last and not content and batch.place.offset:  # The text ended before this batch.
        yield Passage("", ends_document=True)


def _decoded(batch: Batch, content: bytes, start: int) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        at, value = batch.place.offset + start + error.start, error.object[error.start]
        raise FatalError(
            f"{batch.source.path}: is not UTF-8 text: byte {at} is {value:#04x} ({error.reason}); "
            "convert the file, for instance with iconv"
        ) from error


def _of_lines(batch: Batch, field: str) -> Iterator[Passage]:
    number = batch.place.number
    for line in cast(bytes, batch.content).split(b"\n"):
        number += 1
        if not line.strip():
            continue
        where = f"{batch.source.path}, line {number}"
        try:
            value: object = json.loads(line)
        except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError.
            raise FatalError(f"{where}: is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise FatalError(f"{where}: holds {type(value).__name__}, not an object with fields")
        fields = cast(dict[str, object], value)
        if field not in fields:
            raise FatalError(
                f"{where}: has no field {field!r}; it has {', '.join(fields)}. Set "
                "dataset.text_field to the one with the text"
            )
        text = fields[field]
        if text is not None and not isinstance(text, str):
            raise FatalError(f"{where}: the field {field!r} holds {type(text).__name__}, not text")
        yield Passage(_without_halves(text or ""), ends_document=True)


def _without_halves(text: str) -> str:
    """Replace each single half of a surrogate pair by U+FFFD, because a half is no character.

    A JSON line or a table can hold a half, for example if an emoji was cut in two.
    """
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

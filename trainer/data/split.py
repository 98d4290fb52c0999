"""Cuts the stream of tokens into a training part and, at its end, a validation part."""

from __future__ import annotations

import bisect
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainer.checkpoint.durable import fsync_directory
from trainer.config import DatasetConfig
from trainer.data.batches import open_text, skip_bytes
from trainer.data.sources import Source
from trainer.data.stream import ENTRIES, TOKENS, Progress
from trainer.data.tokenizer import Tokenizer, token_dtype
from trainer.launch.exit_codes import FatalError

_ENTRY = np.dtype([("tokens", "<i8"), ("bytes", "<i8"), ("characters", "<i8")])
_COPIED_BYTES = 2**22
# By this factor validation may have more or fewer tokens than are wanted, so that it begins with a
# document.
_FAR = 2


@dataclass(frozen=True)
class Cut:
    """Where the validation split begins.

    Args:
        train_end: The number of tokens at the start of the stream that belong to training.
        val_start: The first of the tokens at the end of the stream that belong to validation.
        between: The two parts of the text between these tokens, if the cut falls into a passage.
            Each part is tokenised by itself.
        train_bytes, val_bytes: The bytes of text in each split.
    """

    train_end: int
    val_start: int
    between: tuple[str, str]
    train_bytes: int
    val_bytes: int


def find_cut(
    directory: Path,
    result: Path,
    progress: Progress,
    dataset: DatasetConfig,
    sources: list[Source],
    tokenizer: Tokenizer,
) -> Cut:
    """Find where the stream in `directory` is cut into the two files in `result`.

    If the publisher has a validation split, the cut is at its begin. If `dataset.val_tokens` is not
    set, a text of one file without documents is cut as in nanoGPT, at a share of its characters.
    Otherwise validation begins with the first entry of the stream that leaves at most the wanted
    tokens. In plain texts an entry is a passage, so that a long text can be in both splits. In
    other data an entry is a document. If the document at the cut is so long that validation would
    get less than half of the wanted tokens or more than twice as many, the cut is inside it.

    Raises:
        FatalError: Validation would get all tokens.
    """
    if not progress.entries:
        return Cut(0, 0, ("", ""), 0, 0)
    entries = np.memmap(directory / ENTRIES, _ENTRY, "r", shape=(progress.entries,))

    def before(entry: int, what: str) -> int:
        return int(entries[entry - 1][what]) if entry else 0

    def first_that_reaches(target: int, what: str) -> int:
        """Return the first entry that begins at `target` or after it."""
        return bisect.bisect_left(range(progress.entries), target, key=lambda e: before(e, what))

    def cut_at(entry: int) -> Cut:
        tokens, size = before(entry, "tokens"), before(entry, "bytes")
        return Cut(tokens, tokens, ("", ""), size, progress.bytes - size)

    if progress.own_validation is not None:
        return cut_at(progress.own_validation)
    if dataset.val_tokens is not None or not is_one_text(dataset, sources):
        validation = dataset.val_tokens or progress.tokens * dataset.val_share
        if 0 < progress.tokens <= validation:
            raise FatalError(
                f"dataset.val_tokens: {validation:,} cannot be used: the data has "
                f"{progress.tokens:,} tokens in all, so none would be left for training; set a "
                "smaller number, or give more text"
            )
        target = max(0, int(progress.tokens - validation))
        entry = first_that_reaches(target, "tokens")
        begin = _inside(entry, progress)
        got = progress.tokens - before(begin, "tokens")
        has_share = validation / _FAR <= got <= validation * _FAR
        if progress.tokens and (progress.entries == 1 or not has_share):
            long_one = max(0, entry - 1)  # The cut falls into this entry.
            start = before(long_one, "tokens"), before(long_one, "bytes")
            return _inside_entry(start, target, directory, result, progress, tokenizer)
        return cut_at(begin)
    target = int(progress.characters * (1 - dataset.val_share))
    entry = first_that_reaches(target, "characters")
    if entry < progress.entries and before(entry, "characters") == target:
        return cut_at(entry)
    passage = entry - 1  # The cut falls into this passage.
    start, end = before(passage, "bytes"), int(entries[passage]["bytes"])
    with open_text(sources[0].path) as file:
        skip_bytes(file, sources[0].path, start)
        text = file.read(end - start).decode()
    left = text[: target - before(passage, "characters")]
    train_bytes = start + len(left.encode())
    return Cut(
        before(passage, "tokens"),
        int(entries[passage]["tokens"]),
        (left, text[len(left) :]),
        train_bytes,
        progress.bytes - train_bytes,
    )


def is_one_text(dataset: DatasetConfig, sources: list[Source]) -> bool:
    """Whether the data is a single text without documents in it."""
    is_text = sources[0].format == "text" and dataset.document_separator is None
    return is_text and len(sources) == 1


def _inside_entry(
    start: tuple[int, int],
    target: int,
    directory: Path,
    result: Path,
    progress: Progress,
    tokenizer: Tokenizer,
) -> Cut:
    """Cut an entry after `target` tokens, or where each split has the two that it needs.

    `start` is the number of tokens and of bytes before this entry.
    """
    left = max(0, min(max(2, target), progress.tokens - 2))
    stream, train = directory / TOKENS, result / "train.bin"
    # After a kill the stream may be train.bin already. It begins with the same tokens.
    dtype = token_dtype(tokenizer.vocab_size)
    tokens = np.memmap(train if train.exists() else stream, dtype, "r")
    (first, size), sizes = start, tokenizer.token_bytes()
    for begin in range(first, left, _COPIED_BYTES):
        size += int(sizes[tokens[begin : min(left, begin + _COPIED_BYTES)]].sum())
    # The sizes of a tokenizer.json's tokens may be approximate. The loss per byte of the validation
    # text is computed, so that text must not have 0 bytes.
    size = max(0, min(size, progress.bytes - 1))
    return Cut(left, left, ("", ""), size, progress.bytes - size)


def _inside(entry: int, progress: Progress) -> int:
    """Leave at least one entry for validation and, if there are two, one for training."""
    return max(min(1, progress.entries - 1), min(entry, progress.entries - 1))


def write_split(directory: Path, result: Path, cut: Cut, tokenizer: Tokenizer) -> None:
    """Make `train.bin` and `val.bin` in `result` out of the stream in `directory`.

    After a kill, the same call can be repeated: validation is copied first, and then the rest of
    the stream becomes `train.bin`.

    Raises:
        FatalError: A split has fewer than two tokens.
    """
    dtype = token_dtype(tokenizer.vocab_size)
    left, right = (_encode(tokenizer, text, dtype) for text in cut.between)
    stream, train, val = directory / TOKENS, result / "train.bin", result / "val.bin"
    if train.exists():
        return
    if not val.exists():
        unfinished = result / "val.tmp"
        with stream.open("rb") as source, unfinished.open("wb") as file:
            file.write(right)
            source.seek(cut.val_start * dtype.itemsize)
            while content := source.read(_COPIED_BYTES):
                file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _check_size("train", cut.train_end + len(left) // dtype.itemsize)
        _check_size("val", unfinished.stat().st_size // dtype.itemsize)
        unfinished.replace(val)
        fsync_directory(result)
    os.truncate(stream, cut.train_end * dtype.itemsize)
    with stream.open("ab") as file:
        file.write(left)
        file.flush()
        os.fsync(file.fileno())
    stream.replace(train)
    fsync_directory(result)


def _check_size(split: str, tokens: int) -> None:
    if tokens < 2:
        raise FatalError(
            f"the data is too short: {split} has {tokens} tokens, and 2 are the least; give more "
            "text, or change dataset.val_share or dataset.val_tokens"
        )


def _encode(tokenizer: Tokenizer, text: str, dtype: np.dtype[Any]) -> bytes:
    return tokenizer.encode(text).astype(dtype).tobytes() if text else b""

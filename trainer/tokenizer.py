"""Text to tokens and back: characters, or GPT-2's byte-pair encoding."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trainer.exit_codes import FatalError, RetryableError

GPT2_RANKS_VARIABLE = "DISTTRAIN_GPT2_RANKS"
# The pre-tokenisation pattern and the special token of OpenAI's GPT-2 release (encoder.py).
_GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_GPT2_END_OF_TEXT = 50256


class Tokenizer(Protocol):
    """What preparation, training and sampling need."""

    @property
    def vocab_size(self) -> int:
        """Number of different tokens."""
        ...

    def encode(self, text: str) -> NDArray[np.uint16]:
        """Tokens of `text`, shape (n,). Raises ValueError for text it cannot express."""
        ...

    def decode(self, tokens: list[int]) -> str:
        """Text of `tokens`."""
        ...

    def to_json(self) -> dict[str, Any]:
        """What `tokenizer_from_json` needs to build it again."""
        ...


@dataclass(frozen=True)
class CharTokenizer:
    """One token per character; the vocabulary is the sorted set of a text's characters."""

    characters: str

    @staticmethod
    def of_text(text: str) -> CharTokenizer:
        """The tokenizer whose vocabulary is exactly the characters of `text`."""
        return CharTokenizer("".join(sorted(set(text))))

    @property
    def vocab_size(self) -> int:
        """Number of different characters."""
        return len(self.characters)

    def encode(self, text: str) -> NDArray[np.uint16]:
        """Index of each character. Raises ValueError naming characters outside the vocabulary."""
        if unknown := sorted(set(text) - set(self.characters)):
            raise ValueError(
                f"{''.join(unknown)!r}: not in the vocabulary; allowed: {self.characters!r}"
            )
        vocabulary = np.array([ord(c) for c in self.characters], np.uint32)
        code_points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        return np.searchsorted(vocabulary, code_points).astype(np.uint16)

    def decode(self, tokens: list[int]) -> str:
        """The characters at these indices."""
        return "".join(self.characters[token] for token in tokens)

    def to_json(self) -> dict[str, Any]:
        """Kind and vocabulary."""
        return {"kind": "char", "characters": self.characters}


class Gpt2Tokenizer:
    """GPT-2's byte-pair encoding by tiktoken.

    The ranks come from tiktoken itself, which downloads them once and keeps them below
    TIKTOKEN_CACHE_DIR, or, without network, from a file in tiktoken's format (base64 token and
    rank per line) that DISTTRAIN_GPT2_RANKS names.
    """

    vocab_size = 50257

    def __init__(self) -> None:
        import tiktoken

        if ranks_file := os.environ.get(GPT2_RANKS_VARIABLE):
            self._encoding = tiktoken.Encoding(
                name="gpt2",
                pat_str=_GPT2_PATTERN,
                mergeable_ranks=_read_ranks(Path(ranks_file)),
                special_tokens={"<|endoftext|>": _GPT2_END_OF_TEXT},
            )
            return
        try:
            self._encoding = tiktoken.get_encoding("gpt2")
        except OSError as error:  # requests' errors are OSErrors
            raise RetryableError(
                "GPT-2's BPE ranks could not be downloaded by tiktoken "
                f"({type(error).__name__}); set HTTPS_PROXY, or TIKTOKEN_CACHE_DIR to a filled "
                f"cache, or {GPT2_RANKS_VARIABLE} to a ranks file"
            ) from error

    def encode(self, text: str) -> NDArray[np.uint16]:
        """Tokens of ordinary text; '<|endoftext|>' inside it is not special."""
        return np.array(self._encoding.encode_ordinary(text), np.uint16)

    def decode(self, tokens: list[int]) -> str:
        """Text; bytes that are no UTF-8 become U+FFFD."""
        return self._encoding.decode(tokens)

    def to_json(self) -> dict[str, Any]:
        """Kind only: the ranks are the published ones."""
        return {"kind": "gpt2"}


def tokenizer_from_json(saved: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that `to_json` described."""
    if saved["kind"] == "char":
        return CharTokenizer(saved["characters"])
    assert saved["kind"] == "gpt2"
    return Gpt2Tokenizer()


def _read_ranks(path: Path) -> dict[bytes, int]:
    try:
        lines = [line.split() for line in path.read_text("ascii").splitlines() if line]
        ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    except (OSError, ValueError) as error:
        raise FatalError(f"{GPT2_RANKS_VARIABLE}={path}: cannot be read: {error}") from error
    if sorted(ranks.values()) != list(range(_GPT2_END_OF_TEXT)):
        raise FatalError(
            f"{GPT2_RANKS_VARIABLE}={path}: holds {len(ranks)} ranks; "
            f"GPT-2 has exactly 0 to {_GPT2_END_OF_TEXT - 1}"
        )
    return ranks

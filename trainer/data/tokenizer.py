"""Turns text into tokens and back: by characters, GPT-2's byte pairs, or any tokenizer.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.uint16] | NDArray[np.uint32]
END_OF_TEXT = "<|endoftext|>"


class Tokenizer(Protocol):
    """The methods of a tokenizer that preparation, training and sampling use."""

    @property
    def vocab_size(self) -> int:
        """The number of different tokens."""
        ...

    @property
    def end_of_text(self) -> int | None:
        """The token that ends a document, or None if the vocabulary has none."""
        ...

    def encode(self, text: str) -> Tokens:
        """Return the tokens of `text`, shape (n,). Raises ValueError for text without tokens."""
        ...

    def decode(self, tokens: list[int]) -> str:
        """Return the text of `tokens`."""
        ...

    def token_bytes(self) -> NDArray[np.int64]:
        """The length in bytes of each token's text, shape (vocab_size,); 0 for special tokens."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return the values from which `tokenizer_from_json` makes the tokenizer again."""
        ...


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """Return the type of tokens in files: uint16 if all tokens fit, else uint32, little-endian."""
    return np.dtype("<u2" if vocab_size <= 2**16 else "<u4")


@dataclass(frozen=True)
class CharTokenizer:
    """A tokenizer with one token per character.

    Args:
        characters: The vocabulary, the sorted set of a text's characters.
        has_end_of_text: Whether there is one more token, after the characters, that ends each
            document.
    """

    characters: str
    has_end_of_text: bool = False

    def __post_init__(self) -> None:
        vocabulary = np.frombuffer(self.characters.encode("utf-32-le"), np.uint32)
        table = np.full(int(vocabulary[-1]) + 1 if len(vocabulary) else 0, -1, np.int32)
        table[vocabulary] = np.arange(len(vocabulary), dtype=np.int32)
        object.__setattr__(self, "_table", table)

    @property
    def vocab_size(self) -> int:
        """The number of different characters, plus 1 if a token ends each document."""
        return len(self.characters) + self.has_end_of_text

    @property
    def end_of_text(self) -> int | None:
        """The last token if the data has documents, else None."""
        return len(self.characters) if self.has_end_of_text else None

    def encode(self, text: str) -> Tokens:
        """Return the index of each character.

        Raises:
            ValueError: The text has characters outside the vocabulary. The message names them.
        """
        table: NDArray[np.int32] = self.__dict__["_table"]
        code_points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        is_inside = code_points < len(table)
        indices = table[np.where(is_inside, code_points, 0)] if len(table) else None
        if indices is None or not is_inside.all() or (len(indices) and indices.min() < 0):
            unknown = "".join(sorted(set(text) - set(self.characters)))
            if unknown:
                raise ValueError(
                    f"{unknown!r} cannot be used: the text of the training did not have it. "
                    f"Use only these characters: {self.characters!r}."
                )
            indices = np.zeros(0, np.int32)
        return indices.astype(token_dtype(self.vocab_size))

    def decode(self, tokens: list[int]) -> str:
        """Return the characters at these indices. The end of a document becomes `<|endoftext|>`."""
        characters, end = self.characters, self.end_of_text
        return "".join(END_OF_TEXT if token == end else characters[token] for token in tokens)

    def token_bytes(self) -> NDArray[np.int64]:
        """The length in bytes of each character in UTF-8; 0 for the end of a document."""
        lengths = [len(character.encode()) for character in self.characters]
        return np.array([*lengths, *([0] if self.has_end_of_text else [])], np.int64)

    def to_json(self) -> dict[str, Any]:
        """Return the kind and the vocabulary."""
        return {
            "kind": "char",
            "characters": self.characters,
            "has_end_of_text": self.has_end_of_text,
        }


def tokenizer_from_json(saved: Mapping[str, Any], directory: Path | None = None) -> Tokenizer:
    """Make the tokenizer that `to_json` described.

    `directory` is the folder that holds its tokenizer.json. Without it, the path in `saved` is
    used.
    """
    if saved["kind"] == "char":
        return CharTokenizer(saved["characters"], bool(saved.get("has_end_of_text")))
    if saved["kind"] == "gpt2":
        from trainer.data.gpt2_tokenizer import Gpt2Tokenizer

        return Gpt2Tokenizer()
    from trainer.data.json_tokenizer import JsonTokenizer

    assert saved["kind"] == "tokenizer.json"
    path = Path(saved["file"])
    return JsonTokenizer.open(
        directory / path.name if directory else path, saved["end_of_text"], saved["sha256"]
    )

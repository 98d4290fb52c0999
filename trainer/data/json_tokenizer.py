"""Uses any tokenizer of the library `tokenizers`, from its file tokenizer.json."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.data.tokenizer import Tokens, token_dtype
from trainer.launch.exit_codes import FatalError

# The names of the token between documents in well-known tokenizers (GPT-2, Llama 3, Llama 2,
# Gemma).
_USUAL_NAMES = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")


@dataclass(frozen=True)
class JsonTokenizer:
    """The tokenizer in a tokenizer.json, and the name of its token that ends a document."""

    file: Path
    sha256: str
    end_of_text_name: str
    _tokenizer: Any

    @staticmethod
    def open(path: Path, end_of_text: str | None, sha256: str | None = None) -> JsonTokenizer:
        """Read `path`.

        Args:
            path: The file.
            end_of_text: The name of the token that ends a document. With None the usual names are
                tried.
            sha256: The expected checksum of the file, if it is known.

        Raises:
            FatalError: The file cannot be read, has another checksum, or has no such token.
        """
        # Several processes tokenise documents already; threads in each would only compete.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        from tokenizers import Tokenizer as Library

        remedy = "Put that file back, or remove the data set and prepare it again"
        try:
            content = path.read_bytes()
        except OSError as error:
            text = f"dataset.tokenizer: {path} cannot be read: {error}. {remedy}"
            raise FatalError(text) from error
        actual = hashlib.sha256(content).hexdigest()
        if sha256 is not None and actual != sha256:
            raise FatalError(
                f"{path} has changed: its sha256 is {actual}, and the data set was made with "
                f"{sha256}. {remedy}"
            )
        try:
            tokenizer = Library.from_buffer(content)
        except Exception as error:  # The library raises exactly this class.
            raise FatalError(
                f"dataset.tokenizer: {path} is no tokenizer.json of the library `tokenizers`: "
                f"{error}"
            ) from error
        # The file may limit or fill up each text, which is for the batches of a fine-tuning. A
        # document would lose its end here, without a word.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        names = _USUAL_NAMES if end_of_text is None else (end_of_text,)
        known = [name for name in names if tokenizer.token_to_id(name) is not None]
        if not known:
            raise FatalError(
                f"dataset.end_of_text: {path} has no token {' or '.join(names)}; set the name of "
                "the token that ends a document"
            )
        return JsonTokenizer(path, actual, known[0], tokenizer)

    @property
    def vocab_size(self) -> int:
        """The number of different tokens: 1 more than the largest number in the vocabulary."""
        return self._vocab_size

    @cached_property
    def _vocab_size(self) -> int:
        """The size is cached: `encode` needs it for each document, and counting takes long."""
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values()) + 1

    @property
    def end_of_text(self) -> int | None:
        """The token that ends a document."""
        return self._tokenizer.token_to_id(self.end_of_text_name)

    def encode(self, text: str) -> Tokens:
        """Return the tokens of `text`, without those that some tokenizers add around a text."""
        numbers = self._tokenizer.encode(text, add_special_tokens=False).ids
        return np.array(numbers, token_dtype(self.vocab_size))

    def decode(self, tokens: list[int]) -> str:
        """Return the text of `tokens`, including that of special tokens."""
        return self._tokenizer.decode(tokens, skip_special_tokens=False)

    def token_bytes(self) -> NDArray[np.int64]:
        """The length in bytes of each token's text, decoded alone; 0 for special tokens.

        The lengths are only approximate for a tokenizer whose tokens depend on their neighbours.
        """
        special = {
            number for number, token in self._tokenizer.get_added_tokens_decoder().items()
            if token.special
        }  # fmt: skip
        texts = self._tokenizer.decode_batch(
            [[token] for token in range(self.vocab_size)], skip_special_tokens=False
        )
        return np.array(
            [0 if n in special else len(text.encode()) for n, text in enumerate(texts)], np.int64
        )

    def to_json(self) -> dict[str, Any]:
        """Return where the file is, and the checksum by which a changed file is noticed."""
        return {
            "kind": "tokenizer.json",
            "file": str(self.file),
            "sha256": self.sha256,
            "end_of_text": self.end_of_text_name,
        }

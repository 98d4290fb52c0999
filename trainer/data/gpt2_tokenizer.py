"""GPT-2's byte-pair encoding, with the library tiktoken."""

from __future__ import annotations

import base64
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trainer.data.tokenizer import Tokens
from trainer.launch.exit_codes import FatalError, RetryableError

if TYPE_CHECKING:
    import tiktoken

GPT2_RANKS_VARIABLE = "DISTTRAIN_GPT2_RANKS"
# The pre-tokenisation pattern and the special token of OpenAI's GPT-2 release (encoder.py).
_GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_GPT2_END_OF_TEXT = 50256
GPT2_VOCAB_SIZE = 50257


class Gpt2Tokenizer:
    """GPT-2's vocabulary of 50,257 tokens.

    The ranks of the tokens come from tiktoken, which downloads them once and keeps them below
    TIKTOKEN_CACHE_DIR. Without network they come from the file that DISTTRAIN_GPT2_RANKS names, in
    tiktoken's format (a base64 token and its rank per line). They are loaded when they are first
    needed, because training on prepared data needs only the size of the vocabulary.

    The first call of `encode`, `decode` or `token_bytes` may raise:
        FatalError: The file that DISTTRAIN_GPT2_RANKS names cannot be used.
        RetryableError: tiktoken could not download the ranks.
    """

    vocab_size = GPT2_VOCAB_SIZE
    end_of_text: int | None = _GPT2_END_OF_TEXT

    @cached_property
    def _encoding(self) -> tiktoken.Encoding:
        import tiktoken

        if ranks_file := os.environ.get(GPT2_RANKS_VARIABLE):
            return tiktoken.Encoding(
                name="gpt2",
                pat_str=_GPT2_PATTERN,
                mergeable_ranks=_read_ranks(Path(ranks_file)),
                special_tokens={"<|endoftext|>": _GPT2_END_OF_TEXT},
            )
        try:
            return tiktoken.get_encoding("gpt2")
        except OSError as error:  # requests' errors are OSErrors
            raise RetryableError(
                "GPT-2's BPE ranks could not be downloaded by tiktoken "
                f"({type(error).__name__}); set HTTPS_PROXY, or TIKTOKEN_CACHE_DIR to a filled "
                f"cache, or {GPT2_RANKS_VARIABLE} to a ranks file"
            ) from error

    def encode(self, text: str) -> Tokens:
        """Return the tokens of `text`. A '<|endoftext|>' in it is ordinary text."""
        tokens = self._encoding.encode_to_numpy(text, disallowed_special=())
        return tokens.astype(np.uint16)

    def decode(self, tokens: list[int]) -> str:
        """Return the text of `tokens`. Bytes that are not UTF-8 become U+FFFD."""
        return self._encoding.decode(tokens)

    def token_bytes(self) -> NDArray[np.int64]:
        """The length in bytes of each token's text, shape (vocab_size,)."""
        ordinary = range(_GPT2_END_OF_TEXT)
        decode = self._encoding.decode_single_token_bytes
        return np.array([*(len(decode(token)) for token in ordinary), 0], np.int64)

    def to_json(self) -> dict[str, Any]:
        """Return only the kind, because the ranks are always the published ones."""
        return {"kind": "gpt2"}


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

"""A tokenizer of the documents in documents.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.trainer.data.documents import DOCUMENTS, END


@pytest.fixture
def tokenizer_file(tmp_path: Path) -> Path:
    """Return a real `tokenizer.json` of words, with GPT-2's name for the end of a text."""
    words = sorted({word for document in DOCUMENTS for word in document.split()})
    numbers = {word: number for number, word in enumerate([END, "?", *words])}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([END])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"

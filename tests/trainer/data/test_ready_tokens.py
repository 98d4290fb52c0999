"""Tokenizers of the user, and sources that are tokens already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.trainer.data.documents import DOCUMENTS, END, made, text_of, write_jsonl
from trainer.data.dataset import open_dataset
from trainer.data.json_tokenizer import JsonTokenizer
from trainer.launch.exit_codes import FatalError


def test_any_tokenizer_json_can_be_used(tmp_path: Path, tokenizer_file: Path) -> None:
    """A `tokenizer.json` can be used, and the data set keeps its own copy."""
    (folder := tmp_path / "source").mkdir()
    dataset = made(tmp_path, write_jsonl(folder), tokenizer=str(tokenizer_file))
    assert text_of(dataset) == " ".join(" ".join([*d.split(), END]) for d in DOCUMENTS)
    # The data set keeps its own copy, so that it does not depend on the file.
    tokenizer_file.write_text("{}")
    assert open_dataset(tmp_path / "data/datasets/d").tokenizer.encode("word").tolist()


def test_settings_of_batches_in_tokenizers_do_not_count(
    tmp_path: Path, tokenizer_file: Path
) -> None:
    """A `tokenizer.json` can hold a longest text and a filling for batches, which a fine-tuning has
    left in it. Neither counts for a data set: each document would lose its end, and get tokens that
    no text has.
    """
    library = Tokenizer.from_file(str(tokenizer_file))
    library.enable_truncation(5)
    library.enable_padding(length=9, pad_id=1, pad_token="?")
    library.save(str(tokenizer_file))
    (folder := tmp_path / "source").mkdir()
    dataset = made(tmp_path, write_jsonl(folder), tokenizer=str(tokenizer_file))
    assert text_of(dataset) == " ".join(" ".join([*d.split(), END]) for d in DOCUMENTS)


def test_the_vocabulary_is_listed_once(tokenizer_file: Path) -> None:
    """The vocabulary is listed once and not for each document, because the list of 128,000 tokens
    takes a third of a second.
    """
    lists = list[bool]()

    class Library:
        """A stand-in for the tokenizer that notes each list of the vocabulary, and passes all calls
        on.
        """

        def __getattr__(self, name: str) -> Any:
            return getattr(library, name)

        def get_vocab(self, with_added_tokens: bool) -> dict[str, int]:
            lists.append(with_added_tokens)
            return library.get_vocab(with_added_tokens)

    library = Tokenizer.from_file(str(tokenizer_file))
    tokenizer = JsonTokenizer(tokenizer_file, "", END, Library())
    for _ in range(3):
        assert len(tokenizer.encode("says: word word")) == 3
    assert lists == [True]


def test_a_tokenizer_that_cannot_be_used_is_named(tmp_path: Path, tokenizer_file: Path) -> None:
    source = write_jsonl(tmp_path)
    with pytest.raises(FatalError, match=r"other.json cannot be read"):
        made(tmp_path, source, tokenizer=str(tmp_path / "other.json"))
    with pytest.raises(FatalError, match=r"has no token <eot>; set the name of the token"):
        made(tmp_path, source, tokenizer=str(tokenizer_file), end_of_text="<eot>")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(FatalError, match=r"bad.json is no tokenizer.json of the library"):
        made(tmp_path, source, tokenizer=str(tmp_path / "bad.json"))


def llm_c(tokens: list[int], magic: int = 20240520, dtype: str = "<u2") -> bytes:
    """Return a file as llm.c's `dev/data/data_common.py` writes it."""
    header = np.zeros(256, "<i4")
    header[:3] = magic, 1, len(tokens)
    return header.tobytes() + np.array(tokens, dtype).tobytes()


TRAIN = [0, 5, 6, 0, 7, 8, 9]


@pytest.mark.parametrize("kind", ["nanoGPT", "llm.c", "llm.c of 4 bytes"])
def test_ready_made_tokens_are_taken_over(tmp_path: Path, tokenizer_file: Path, kind: str) -> None:
    """Token files of nanoGPT and llm.c are used without change, and the originals stay."""
    (folder := tmp_path / "source").mkdir()
    if kind == "nanoGPT":
        (folder / "train.bin").write_bytes(np.array(TRAIN, "<u2").tobytes())
        (folder / "val.bin").write_bytes(np.array([3, 4, 0], "<u2").tobytes())
    else:
        settings = (20240801, "<u4") if kind.endswith("bytes") else (20240520, "<u2")
        (folder / "f_train_000002.bin").write_bytes(llm_c(TRAIN[3:], *settings))
        (folder / "f_train_000001.bin").write_bytes(llm_c(TRAIN[:3], *settings))
        (folder / "f_val_000000.bin").write_bytes(llm_c([3, 4, 0], *settings))
    dataset = made(tmp_path, folder, tokenizer=str(tokenizer_file))
    assert (dataset.train.tolist(), dataset.val.tolist()) == (TRAIN, [3, 4, 0])
    decoded = dataset.tokenizer.decode([3]), dataset.tokenizer.decode([4])
    assert dataset.val_bytes == sum(len(text.encode()) for text in decoded)
    assert (folder / ("val.bin" if kind == "nanoGPT" else "f_val_000000.bin")).exists()


def test_tokens_that_the_tokenizer_does_not_have_are_found(
    tmp_path: Path, tokenizer_file: Path
) -> None:
    """Token files are refused with the place of the error if a token is not in the vocabulary, if
    the tokenizer makes its vocabulary from text, or if the file's size is wrong.
    """
    (tmp_path / "t.bin").write_bytes(np.array([1, 2, 3, 60000], "<u2").tobytes())
    with pytest.raises(FatalError, match=r"t.bin: token number 3 is 60000, and .* has only \d+ "):
        made(tmp_path, tmp_path / "t.bin", tokenizer=str(tokenizer_file))
    with pytest.raises(FatalError, match=r"'char' cannot be used for .*t.bin, which holds tokens"):
        made(tmp_path, tmp_path / "t.bin")
    (tmp_path / "t.bin").write_bytes(llm_c([1, 2, 3])[:-2])
    with pytest.raises(FatalError, match=r"t.bin: has 1028 bytes, and 3 tokens .* would be 1030"):
        made(tmp_path, tmp_path / "t.bin", tokenizer=str(tokenizer_file))

"""How a source is divided into training and validation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest
from tokenizers import Tokenizer, models

from tests.trainer.data.documents import DOCUMENTS, END, made, text_of, write_jsonl
from trainer.config import DatasetConfig
from trainer.data.sources import local_sources
from trainer.launch.exit_codes import FatalError


def test_validation_by_tokens_takes_whole_documents(tmp_path: Path) -> None:
    """With `val_tokens` validation gets whole documents with at most so many tokens."""
    (folder := tmp_path / "source").mkdir()
    dataset = made(tmp_path, write_jsonl(folder), val_tokens=500)
    longest = max(map(len, DOCUMENTS)) + 1
    assert 500 - longest < len(dataset.val) <= 500
    assert dataset.train[-1] == dataset.tokenizer.end_of_text


def test_a_plain_text_is_split_by_tokens_too(tmp_path: Path) -> None:
    """With `val_tokens` a plain text is divided, and none of it is lost."""
    (tmp_path / "text").write_text("a line of a text\n" * 5000)
    dataset = made(tmp_path, tmp_path / "text", val_tokens=20_000)
    assert 15_000 < len(dataset.val) <= 20_000
    assert text_of(dataset) == "a line of a text\n" * 5000
    assert dataset.val_bytes == len(dataset.val)


@pytest.mark.parametrize("kind", ["jsonl", "separated", "line"])
def test_one_big_document_is_divided(tmp_path: Path, kind: str) -> None:
    """A data set of one document, such as a book in one line of JSON, is divided inside the
    document. Otherwise it would be refused as too short for two splits.
    """
    book, end = "naïve words of a book. " * 2000, END
    options: dict[str, Any] = {"val_share": 0.2}
    if kind == "jsonl":
        file = tmp_path / "book.jsonl"
        file.write_text(json.dumps({"text": book}))
    else:
        file = tmp_path / "book.txt"
        file.write_text(book)
        options["document_separator"] = "<end>"
        if kind == "line":
            options, end = {"val_tokens": len(book) // 5}, ""
    dataset = made(tmp_path, file, **options)
    assert text_of(dataset) == book + end
    assert len(dataset.val) == pytest.approx(len(book) / 5, abs=1)
    val = dataset.tokenizer.decode(dataset.val.tolist())
    assert dataset.val_bytes == len(val.removesuffix(END).encode())


@pytest.mark.parametrize("sizes", [(1, 100), (30, 1, 100), (1, 100, 1)], ids=str)
def test_huge_document_is_divided_beside_small_ones(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    """Validation gets its share, although the cut falls into a document that is most of the data.
    Otherwise it would get the whole document, or only the few tokens behind it.
    """
    documents = [f"naïve words of book {number}. " * 50 * size for number, size in enumerate(sizes)]
    file = tmp_path / "books.jsonl"
    file.write_text("".join(json.dumps({"text": each}) + "\n" for each in documents))
    dataset = made(tmp_path, file)
    assert text_of(dataset) == "".join(each + END for each in documents)
    everything = len(dataset.train) + len(dataset.val)
    assert len(dataset.val) == pytest.approx(everything / 5, abs=1)
    val = dataset.tokenizer.decode(dataset.val.tolist())
    assert dataset.val_bytes == len(val.replace(END, "").encode())
    meta = json.loads((tmp_path / "data" / "datasets" / "d" / "meta.json").read_text())
    assert meta["splits"]["train"]["bytes"] + dataset.val_bytes == len("".join(documents).encode())


def test_last_document_that_is_somewhat_long_stays_whole(tmp_path: Path) -> None:
    """A split is between two documents if validation gets half of what it should, or twice that."""
    file = tmp_path / "books.jsonl"
    documents = ["a" * 700, "b" * 300]
    file.write_text("".join(json.dumps({"text": each}) + "\n" for each in documents))
    dataset = made(tmp_path, file)
    assert dataset.tokenizer.decode(dataset.val.tolist()) == documents[1] + END


def test_more_validation_than_data_is_refused(tmp_path: Path) -> None:
    """A `val_tokens` that leaves nothing for training is refused. The message has both numbers."""
    (folder := tmp_path / "source").mkdir()
    words = "dataset.val_tokens: 500,000 cannot be used: the data has .* tokens in all"
    with pytest.raises(FatalError, match=words):
        made(tmp_path, write_jsonl(folder), val_tokens=500_000)


def test_document_without_tokens_is_too_short(tmp_path: Path) -> None:
    """A text of which the tokenizer leaves nothing is refused as too short."""
    words = tmp_path / "words.json"
    Tokenizer(models.BPE({"a": 0, "</s>": 1}, [])).save(str(words))
    (tmp_path / "text").write_text("b")
    with pytest.raises(FatalError, match="the data is too short: train has 0 tokens"):
        made(tmp_path, tmp_path / "text", tokenizer=str(words), val_tokens=5)


def test_the_publishers_validation_split_is_used(tmp_path: Path) -> None:
    """A validation split of the publisher is used as it is."""
    for split, words in (("train", ["one", "two"]), ("validation", ["three"])):
        folder = tmp_path / "dict" / split
        folder.mkdir(parents=True)
        table = pyarrow.table({"text": words})
        with pyarrow.ipc.new_stream(str(folder / "data.arrow"), table.schema) as stream:
            stream.write_table(table)
        (folder / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}]}')
    (tmp_path / "dict" / "dataset_dict.json").write_text('{"splits": ["train", "validation"]}')
    dataset = made(tmp_path, tmp_path / "dict")
    decode = dataset.tokenizer.decode
    assert decode(dataset.train.tolist()) == f"one{END}two{END}"
    assert decode(dataset.val.tolist()) == f"three{END}"
    assert dataset.val_bytes == len("three")


def test_names_tell_the_publishers_validation_split(tmp_path: Path) -> None:
    """A file is a validation split only if its name has that word as a part of its own. Otherwise
    the tokens of a file such as `retrieval` would be missing in training.
    """
    validation = ["val.bin", "fineweb_val_000000.bin", "wiki-validation.bin", "valid01.bin"]
    training = ["train.bin", "retrieval_train_000.bin", "medieval.bin", "interval-02.bin"]
    for name in (*validation, *training):
        (tmp_path / name).write_bytes(b"")
    sources = local_sources(DatasetConfig(file=str(tmp_path), tokenizer="gpt2"))
    found = {source.path.name: source.is_validation for source in sources}
    assert found == {**dict.fromkeys(training, False), **dict.fromkeys(validation, True)}

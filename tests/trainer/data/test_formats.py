"""Every kind of input gives the tokens of the same documents."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest

from tests.trainer.data.documents import (
    DOCUMENTS,
    END,
    json_lines,
    made,
    text_of,
    write_jsonl,
    write_parquet,
)
from trainer.data import batches


def write_gzip(folder: Path) -> Path:
    (folder / "d.jsonl.gz").write_bytes(gzip.compress(json_lines()))
    return folder / "d.jsonl.gz"


def write_gzip_in_capitals(folder: Path) -> Path:
    return write_gzip(folder).rename(folder / "D.JSONL.GZ")


def write_zstd_of_two_frames(folder: Path) -> Path:
    lines = json_lines()
    half = len(lines) // 2
    codec = pyarrow.Codec("zstd")
    frames = [codec.compress(part, asbytes=True) for part in (lines[:half], lines[half:])]
    (folder / "d.jsonl.zst").write_bytes(b"".join(frames))
    return folder / "d.jsonl.zst"


def write_hugging_face(folder: Path) -> Path:
    """Write what `datasets.Dataset.save_to_disk` writes: arrow streams, and a list of them."""
    files = []
    for number, part in enumerate((DOCUMENTS[:170], DOCUMENTS[170:])):
        name = f"data-{number:05d}-of-00002.arrow"
        table = pyarrow.table({"text": pyarrow.array(part, pyarrow.large_string())})
        with pyarrow.ipc.new_stream(str(folder / name), table.schema) as stream:
            stream.write_table(table, max_chunksize=50)
        files.append({"filename": name})
    (folder / "state.json").write_text(json.dumps({"_data_files": files}))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def write_arrow_file(folder: Path) -> Path:
    table = pyarrow.table({"text": DOCUMENTS})
    with pyarrow.ipc.new_file(str(folder / "d.arrow"), table.schema) as file:
        file.write_table(table, max_chunksize=64)
    return folder / "d.arrow"


def write_folder_of_texts(folder: Path) -> Path:
    for number, document in enumerate(DOCUMENTS):
        (folder / f"{number:05d}.txt").write_text(document)
    return folder


def write_separated(folder: Path) -> Path:
    (folder / "d.txt").write_text(END.join(DOCUMENTS))
    return folder / "d.txt"


@pytest.mark.parametrize(
    "write",
    [
        write_jsonl,
        write_gzip,
        write_gzip_in_capitals,
        write_zstd_of_two_frames,
        write_parquet,
        write_hugging_face,
        write_arrow_file,
        write_folder_of_texts,
        write_separated,
    ],
)
def test_every_format_gives_the_same_documents(
    tmp_path: Path, write: Callable[[Path], Path]
) -> None:
    """Every format of input gives the same documents, each with an end of text. Validation gets
    whole documents of at most its share.
    """
    folder = tmp_path / "source"
    folder.mkdir()
    separator = {"document_separator": END} if write is write_separated else {}
    dataset = made(tmp_path, write(folder), **separator)
    assert text_of(dataset) == "".join(document + END for document in DOCUMENTS)
    assert dataset.train[-1] == dataset.tokenizer.end_of_text  # only whole documents are cut off
    validation = dataset.tokenizer.decode(dataset.val.tolist())
    assert dataset.val_bytes == len(validation.replace(END, "").encode())
    assert 0.15 < len(dataset.val) / (len(dataset.train) + len(dataset.val)) <= 0.2


def test_a_text_that_ends_with_a_batch_ends_its_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text whose last byte is also the last one of a batch gets its end of text, like any
    other.
    """
    monkeypatch.setattr(batches, "BATCH_BYTES", 1024)
    for name, text in (("1", "ab\r\n" * 512), ("2", ""), ("3", "cd\r\n" * 300)):
        (tmp_path / "text").mkdir(exist_ok=True)
        (tmp_path / "text" / f"{name}.txt").write_bytes(text.encode())
    found = text_of(made(tmp_path, tmp_path / "text"))
    assert found == "ab\r\n" * 512 + END + "cd\r\n" * 300 + END


def test_hidden_files_of_a_folder_are_left_out(tmp_path: Path) -> None:
    """Hidden files of a folder are left out. macOS copies a file `._d.jsonl`, which is no JSON,
    beside `d.jsonl`.
    """
    (folder := tmp_path / "source").mkdir()
    write_jsonl(folder)
    (folder / "._d.jsonl").write_bytes(b"Mac OS X")
    assert text_of(made(tmp_path, folder)) == "".join(document + END for document in DOCUMENTS)


def test_documents_without_text_are_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Documents without text are left out, and their number is printed."""
    texts = ["ab", None, "", "ba"]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    dataset = made(tmp_path, tmp_path / "a.jsonl")
    assert text_of(dataset) == f"ab{END}ba{END}"
    assert "2 documents without text were left out" in capsys.readouterr().out


def test_a_file_that_changed_is_prepared_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A data set is prepared again only if its file or its settings have changed, and the reason is
    printed.
    """
    file = write_jsonl(tmp_path)
    made(tmp_path, file)
    capsys.readouterr()
    made(tmp_path, file)
    assert "is already in" in capsys.readouterr().out
    file.write_text(file.read_text() + '{"text": "more"}\n')
    made(tmp_path, file)
    assert "d.jsonl has changed since then: it had" in capsys.readouterr().out
    made(tmp_path, file, val_tokens=300)
    assert "dataset.val_tokens was None and is 300" in capsys.readouterr().out

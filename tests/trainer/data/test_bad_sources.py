"""Sources that are not what they should be."""

from __future__ import annotations

import gzip
import json
import os
from itertools import islice
from pathlib import Path

import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest

from tests.trainer.data.documents import DOCUMENTS, END, made, text_of, write_jsonl, write_parquet
from trainer.data import batches
from trainer.data.batches import Place
from trainer.data.sources import Source
from trainer.launch.exit_codes import FatalError

# Without its time, which would make other names of tests in each worker of xdist.
CUT_OFF = gzip.compress(b'{"text": "x"}\n', mtime=0)[:-4]
NESTED = b'{"text": "x"}\n' + b"[" * 100_000 + b"\n"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", b'{"text": "x"}\n\n{"text": \n', r"a.jsonl, line 3: is not JSON"),
        (
            "a.jsonl",
            b'{"text": "x"}\n{"body": "y", "id": 1}\n',
            r"line 2: has no field 'text'; ",
        ),
        ("a.jsonl", b'{"text": "x"}\n{"text": 5}\n', r"line 2: the field 'text' holds int, not t"),
        ("a.jsonl", b'{"text": "x"}\n[1]\n', r"line 2: holds list, not an object"),
        pytest.param("a.jsonl", NESTED, r"line 2: is not JSON", id="nested"),
        ("a.jsonl.gz", CUT_OFF, r"a.jsonl.gz: cannot be read"),
        ("a.jsonl.gz", b"no gzip", r"a.jsonl.gz: cannot be read"),
        ("a.jsonl.zst", b"no zstd file", r"a.jsonl.zst: cannot be read"),
        ("a.parquet", b"no parquet", r"a.parquet: is no parquet file that can be read"),
        ("a.arrow", b"no arrow file", r"a.arrow: is no arrow file that can be read"),
        ("a.txt", b"good \xff bad" * 9, r"a.txt: is not UTF-8 text: byte 5 is 0xff"),
    ],
)
def test_bad_content_is_named_with_its_place(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    """Content that is not in its format is refused with its file and place, and nothing is left."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FatalError, match=words):
        made(tmp_path, tmp_path / name)
    assert list((tmp_path / "data" / "datasets").iterdir()) == []


def test_a_column_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match=r"has no column 'body'; it has id, text"):
        made(tmp_path, write_parquet(tmp_path), text_field="body")
    with pytest.raises(FatalError, match=r"the column 'id' .* holds int64, not text"):
        made(tmp_path, write_parquet(tmp_path), text_field="id")


@pytest.mark.parametrize(("ending", "format"), [(".json", "jsonl"), (".md", "text")])
def test_format_makes_descriptions_the_data(tmp_path: Path, ending: str, format: str) -> None:
    """With `dataset.format`, a folder that has only `.json` or `.md` files is data. Without that
    setting it is refused, and the error names the setting. Beside other files they are still left
    out as descriptions.
    """
    (folder := tmp_path / "source").mkdir()
    for number, document in enumerate(DOCUMENTS):
        content = json.dumps({"text": document}) if format == "jsonl" else document
        (folder / f"{number:05d}{ending}").write_text(content)
    with pytest.raises(FatalError, match=r"\.json and \.md files are taken for .* dataset\.format"):
        made(tmp_path, folder)
    dataset = made(tmp_path, folder, format=format)
    assert text_of(dataset) == "".join(document + END for document in DOCUMENTS)
    (folder / "data").write_text('{"text": "other"}\n{"text": "documents"}\n')
    assert text_of(made(tmp_path, folder, format="jsonl")) == f"other{END}documents{END}"


def test_folders_that_cannot_be_understood_are_named(tmp_path: Path) -> None:
    """A folder without data, or with files of several formats, is refused with the reason."""
    (folder := tmp_path / "source").mkdir()
    with pytest.raises(FatalError, match=r"holds no text, jsonl, parquet"):
        made(tmp_path, folder)
    write_parquet(folder)
    write_jsonl(folder)
    with pytest.raises(FatalError, match=r"files of several kinds \(jsonl, parquet\)"):
        made(tmp_path, folder)


@pytest.mark.parametrize("ending", ["txt", "txt.gz", "txt.zst"])
def test_source_that_became_shorter_is_named(tmp_path: Path, ending: str) -> None:
    """A source that is shorter than what an earlier start has read of it is refused. Otherwise the
    end of a gzip file would be read again for ever.
    """
    path, content = tmp_path / f"source.{ending}", b"a line\n" * 100
    if ending == "txt.gz":
        path.write_bytes(gzip.compress(content))
    elif ending == "txt.zst":
        path.write_bytes(pyarrow.Codec("zstd").compress(content, asbytes=True))
    else:
        path.write_bytes(content)
    source = Source(path, "text")
    assert next(batches.read_batches(source, Place(700), "text", None)).content == b""
    with pytest.raises(FatalError, match=r"source.*: has 700 bytes of content, and 701 were read"):
        list(batches.read_batches(source, Place(701), "text", None))


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_compressed_token_files_are_refused(tmp_path: Path, ending: str) -> None:
    """Token files that are compressed are refused. Their bytes would be taken for tokens, and a
    large vocabulary has any of these.
    """
    path = tmp_path / f"train.bin.{ending}"
    path.write_bytes(b"\x1f\x8b" * 8)
    with pytest.raises(FatalError, match=r"train\.bin\.\w+: is compressed; .* decompress it"):
        list(batches.read_batches(Source(path, "bin"), Place(), "text", None))


def test_token_file_that_becomes_shorter_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token file that becomes shorter while it is read, or is shorter than what an earlier start
    has read of it, ends the preparation. Its end would be read again for ever.
    """
    monkeypatch.setattr(batches, "BATCH_BYTES", 2**14)
    path = tmp_path / "train.bin"
    path.write_bytes(bytes(2**18))  # more than Python reads ahead
    found = batches.read_batches(Source(path, "bin"), Place(), "text", None)
    assert next(found).next == Place(2**13)
    os.truncate(path, 10)
    with pytest.raises(FatalError, match=r"train\.bin: became shorter while it was read"):
        list(islice(found, 10))
    with pytest.raises(FatalError, match=r"train\.bin: has 5 tokens, and 9 were read before"):
        list(batches.read_batches(Source(path, "bin"), Place(9), "text", None))


def write_unchecked(path: Path, contents: list[bytes]) -> None:
    """Write a table with any bytes as texts, which Arrow does not check."""
    _, offsets, content = pyarrow.array(contents, pyarrow.binary()).buffers()
    buffers = [None, offsets, content]
    texts = pyarrow.Array.from_buffers(pyarrow.string(), len(contents), buffers)
    table = pyarrow.table({"text": texts})
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
        return
    with pyarrow.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)


def write_halves(path: Path) -> None:
    """Write documents with half a character at the end, with the other half at the begin, and with
    a whole one.
    """
    if path.suffix == ".jsonl":
        path.write_text('{"text": "a\\ud83d"}\n{"text": "\\ude00é"}\n{"text": "\\ud83d\\ude00"}\n')
        return
    write_unchecked(path, [b"a\xed\xa0\xbd", b"\xed\xb8\x80\xc3\xa9", "😀".encode()])


@pytest.mark.parametrize("name", ["d.jsonl", "d.parquet", "d.arrow"])
@pytest.mark.parametrize("tokenizer", ["char", "words"])
def test_half_characters_do_not_end_preparation(
    tmp_path: Path, tokenizer_file: Path, name: str, tokenizer: str
) -> None:
    """Half of a surrogate pair, as in an emoji that was cut in two, becomes U+FFFD and ends
    nothing.
    """
    write_halves(tmp_path / name)
    file = str(tokenizer_file) if tokenizer == "words" else tokenizer
    dataset = made(tmp_path, tmp_path / name, tokenizer=file)
    if tokenizer == "char":
        assert text_of(dataset) == f"a\ufffd{END}\ufffdé{END}😀{END}"
    assert dataset.val_bytes == len("😀".encode())


@pytest.mark.parametrize("name", ["d.parquet", "d.arrow"])
def test_tables_without_text_are_named(tmp_path: Path, name: str) -> None:
    """A table whose texts are not UTF-8 is refused with the row."""
    write_unchecked(tmp_path / name, [b"good", b"bad \xff"])
    with pytest.raises(FatalError, match=rf"{name}: the row that begins with .*bad.* is not UTF-8"):
        made(tmp_path, tmp_path / name)

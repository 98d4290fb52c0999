"""Every kind of input gives the tokens of the same documents."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from trainer.config import DatasetConfig, RunConfig
from trainer.data import batches
from trainer.data.batches import Place
from trainer.data.dataset import Dataset, open_dataset
from trainer.data.json_tokenizer import JsonTokenizer
from trainer.data.prepare import prepare
from trainer.data.sources import Source, local_sources
from trainer.launch.exit_codes import FatalError

DOCUMENTS = [f"document {n}\nsays: naïve 😀 {'word ' * (n % 7)}end" for n in range(300)]
END = "<|endoftext|>"


def made(root: Path, file: Path, **dataset: Any) -> Dataset:
    """Prepare a data set from this file or folder, and open it."""
    values = {"name": "d", "file": str(file), "val_share": 0.2, **dataset}
    run = RunConfig.from_mapping({"data_root": str(root / "data"), "dataset": values})
    prepare(run)
    return open_dataset(run.dataset_dir)


def text_of(dataset: Dataset) -> str:
    """Return the text of all tokens, training first."""
    return dataset.tokenizer.decode(np.concatenate([dataset.train, dataset.val]).tolist())


def json_lines() -> bytes:
    """Return the documents as lines of JSON."""
    lines = [json.dumps({"id": number, "text": text}) for number, text in enumerate(DOCUMENTS)]
    return ("\n".join(lines) + "\n").encode()


def write_jsonl(folder: Path) -> Path:
    (folder / "d.jsonl").write_bytes(json_lines())
    return folder / "d.jsonl"


def write_gzip(folder: Path) -> Path:
    (folder / "d.jsonl.gz").write_bytes(gzip.compress(json_lines()))
    return folder / "d.jsonl.gz"


def write_zstd_of_two_frames(folder: Path) -> Path:
    lines = json_lines()
    half = len(lines) // 2
    codec = pyarrow.Codec("zstd")
    frames = [codec.compress(part, asbytes=True) for part in (lines[:half], lines[half:])]
    (folder / "d.jsonl.zst").write_bytes(b"".join(frames))
    return folder / "d.jsonl.zst"


def write_parquet(folder: Path) -> Path:
    table = pyarrow.table({"id": range(len(DOCUMENTS)), "text": DOCUMENTS})
    pyarrow.parquet.write_table(table, folder / "d.parquet", row_group_size=70)
    return folder / "d.parquet"


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


# --- tokenizers and ready-made tokens ---


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


def test_any_tokenizer_json_can_be_used(tmp_path: Path, tokenizer_file: Path) -> None:
    """A `tokenizer.json` can be used, and the data set keeps its own copy."""
    (folder := tmp_path / "source").mkdir()
    dataset = made(tmp_path, write_jsonl(folder), tokenizer=str(tokenizer_file))
    assert text_of(dataset) == " ".join(" ".join([*d.split(), END]) for d in DOCUMENTS)
    # The data set keeps its own copy, so that it does not depend on the file.
    tokenizer_file.write_text("{}")
    assert open_dataset(tmp_path / "data/datasets/d").tokenizer.encode("word").tolist()


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


# --- input that is not what it should be ---

# Without its time, which would make other names of tests in each worker of xdist.
CUT_OFF = gzip.compress(b'{"text": "x"}\n', mtime=0)[:-4]


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


def test_hidden_files_of_a_folder_are_left_out(tmp_path: Path) -> None:
    """Hidden files of a folder are left out. macOS copies a file `._d.jsonl`, which is no JSON,
    beside `d.jsonl`.
    """
    (folder := tmp_path / "source").mkdir()
    write_jsonl(folder)
    (folder / "._d.jsonl").write_bytes(b"Mac OS X")
    assert text_of(made(tmp_path, folder)) == "".join(document + END for document in DOCUMENTS)


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

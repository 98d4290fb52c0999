"""Finds the files of a data set, their order, and the format of each."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from trainer.config import DatasetConfig
from trainer.launch.exit_codes import FatalError

Format = Literal["text", "jsonl", "parquet", "arrow", "bin"]
_BY_SUFFIX: dict[str, Format] = {
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".bin": "bin",
}
COMPRESSIONS = (".gz", ".zst")
# The word must stand by itself, so that `retrieval` and `interval` do not match.
_NAMES_VALIDATION = re.compile(r"(?<![a-z])(val|valid|validation|eval)(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class Source:
    """One file of a data set.

    Args:
        path: The path of the file.
        format: The format of its content.
        is_validation: Whether it belongs to the publisher's own validation split.
        sha256: Its checksum, if that was computed.
    """

    path: Path
    format: Format
    is_validation: bool = False
    sha256: str | None = None


def format_by_name(name: str) -> Format | None:
    """Return the format of a file by its name, or None if its ending is not known."""
    path = Path(name.lower())
    return _BY_SUFFIX.get(Path(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix)


def known_ending(name: str) -> str:
    """Return the ending that tells a file's format, such as `.jsonl.zst`, or an empty text."""
    path = Path(name.lower())
    if path.suffix in COMPRESSIONS:
        return Path(path.stem).suffix * (Path(path.stem).suffix in _BY_SUFFIX) + path.suffix
    return path.suffix if path.suffix in _BY_SUFFIX else ""


def file_name_of(url: str) -> str:
    """Return the last part of the address's path, or `text` if it has none."""
    return Path(urlsplit(url).path).name or "text"


def local_sources(dataset: DatasetConfig) -> list[Source]:
    """List the files of `dataset.file`, which is a file or a folder, training files first.

    Raises:
        FatalError: The file or folder does not exist, or has no files of a known format.
    """
    assert dataset.file is not None
    path = Path(dataset.file)
    if not path.exists():
        raise FatalError(f"dataset.file: {dataset.file!r} cannot be read: there is no such file")
    if not path.is_dir():
        return [Source(path, format_of(dataset, path.name))]
    if dataset.sha256 or dataset.size_bytes:
        raise FatalError(
            f"dataset.sha256: it is the checksum of one file, and dataset.file {dataset.file!r} is "
            "a folder; remove dataset.sha256 and dataset.size_bytes"
        )
    if (path / "dataset_dict.json").exists():
        return _hugging_face_splits(path)
    if (path / "state.json").exists():
        return _hugging_face_split(path, is_validation=False)
    return _folder(dataset, path)


def downloaded_sources(dataset: DatasetConfig, files: list[tuple[str, Path, str]]) -> list[Source]:
    """Make the sources of downloaded files, from the address, path and sha256 of each."""
    return _in_order(
        [
            Source(path, format_of(dataset, file_name_of(url)), sha256=sha256)
            for url, path, sha256 in files
        ]
    )


def format_of(dataset: DatasetConfig, name: str) -> Format:
    """Return the format of the file with this name, by the settings or else by its ending."""
    if dataset.format != "auto":
        return cast(Format, dataset.format)
    return format_by_name(name) or "text"


def _folder(dataset: DatasetConfig, folder: Path) -> list[Source]:
    found: list[Source] = []
    for path in sorted(folder.iterdir()):
        if not path.is_file() or path.name.startswith("."):  # macOS copies `._NAME` beside NAME
            continue
        is_auto = dataset.format == "auto"
        kind = format_by_name(path.name) if is_auto else cast(Format, dataset.format)
        if kind is not None:
            found.append(Source(path, kind))
    data = [source for source in found if not _is_description(source)]
    # If the setting `format` is given and there is nothing else, the descriptions are the data.
    if data or dataset.format == "auto":
        found = data
    formats = sorted({source.format for source in found})
    if len(formats) > 1:
        raise FatalError(
            f"dataset.file: the folder {folder} holds files of several kinds "
            f"({', '.join(formats)}); leave those of one kind in it, or name one file"
        )
    if not found:
        raise FatalError(
            f"dataset.file: the folder {folder} holds no text, jsonl, parquet, arrow or bin files "
            "(sub-folders are not searched, and .json and .md files are taken for descriptions); "
            "name a folder that does, or set dataset.format"
        )
    return _in_order(found)


def _is_description(source: Source) -> bool:
    """Whether the file may only describe the data beside it, as .json and .md files often do."""
    return source.path.suffix in (".json", ".md") and source.format in ("jsonl", "text")


def _in_order(sources: list[Source]) -> list[Source]:
    """Put the validation files last.

    They are recognised by their names in nanoGPT and llm.c: val.bin, fineweb_val_000000.bin.
    """
    named = [
        replace(
            source,
            is_validation=source.format == "bin"
            and _NAMES_VALIDATION.search(source.path.name) is not None,
        )
        for source in sources
    ]
    return sorted(named, key=lambda source: source.is_validation)


def _hugging_face_splits(folder: Path) -> list[Source]:
    """List the files of a DatasetDict, which has one folder for each split."""
    splits = cast(list[str], _json(folder / "dataset_dict.json").get("splits", []))
    if "train" not in splits:
        raise FatalError(
            f"dataset.file: {folder} has the splits {', '.join(splits)}, and none is called train; "
            "name the folder of one split"
        )
    sources = _hugging_face_split(folder / "train", is_validation=False)
    if "validation" in splits:
        sources += _hugging_face_split(folder / "validation", is_validation=True)
    return sources


def _hugging_face_split(folder: Path, is_validation: bool) -> list[Source]:
    """List the arrow files of a Dataset, which its state.json names."""
    files = cast(list[dict[str, str]], _json(folder / "state.json").get("_data_files", []))
    sources = [Source(folder / file["filename"], "arrow", is_validation) for file in files]
    for source in sources:
        if not source.path.exists():
            raise FatalError(
                f"dataset.file: {folder / 'state.json'} names {source.path.name}, which is not "
                "there; copy the whole folder again"
            )
    if not sources:
        raise FatalError(f"dataset.file: {folder / 'state.json'} names no data files")
    return sources


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise FatalError(f"dataset.file: {path} cannot be read: {error}") from error

"""Describes a wanted data set in JSON, by which a prepared one is recognised without reading it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer.config import DatasetConfig, SourceUrl
from trainer.data.download import sha256_of_file
from trainer.data.meta import read_meta
from trainer.data.sources import local_sources
from trainer.data.tokenizer import token_dtype
from trainer.launch.exit_codes import FatalError


def addresses(dataset: DatasetConfig) -> list[tuple[SourceUrl, str]]:
    """List the files to download, each with the name of its setting; none for local files."""
    if dataset.file is not None:
        return []
    if dataset.url is not None:
        return [(SourceUrl(dataset.url, dataset.sha256, dataset.size_bytes), "dataset.url")]
    return [(file, f"dataset.files[{place}].url") for place, file in enumerate(dataset.files)]


def request_of(dataset: DatasetConfig) -> dict[str, Any]:
    """Collect everything that determines the tokens of the data set, as plain JSON.

    A file is identified by its checksum if the settings have one. Otherwise a local file is
    identified by path, size and time of change, and a file to download by its address.

    Raises:
        FatalError: A file does not exist or cannot be read.
    """
    return {
        "tokenizer": _tokenizer(dataset),
        "format": dataset.format,
        "text_field": dataset.text_field,
        "document_separator": dataset.document_separator,
        "val_share": dataset.val_share if dataset.val_tokens is None else None,
        "val_tokens": dataset.val_tokens,
        "sources": _sources(dataset),
    }


def is_prepared(directory: Path, request: Mapping[str, Any]) -> bool:
    """Whether `directory` holds the data set of `request`, in files of the right size."""
    meta = read_meta(directory)
    if meta is None or meta.get("request") != request:
        return False
    width = token_dtype(meta["vocab_size"]).itemsize
    sizes = {directory / f"{name}.bin": split["tokens"] for name, split in meta["splits"].items()}
    return all(path.exists() and path.stat().st_size == n * width for path, n in sizes.items())


def what_differs(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Say in words why a data set that was made for `old` does not fit `new`."""
    changed = [key for key in new if old.get(key) != new[key]]
    if changed == ["sources"]:
        before = {source.get("file"): source for source in old["sources"]}
        for source in new["sources"]:
            known = before.get(source.get("file"))
            if known and "file" in source and known != source:
                return (
                    f"{source['file']} has changed since then: it had {known['size_bytes']} bytes "
                    f"and has {source['size_bytes']}, and was written again"
                    if known["size_bytes"] != source["size_bytes"]
                    else f"{source['file']} was written again since then"
                )
        return "its files are other ones"
    if changed:
        return ", ".join(
            f"dataset.{key} was {old.get(key)!r} and is {new[key]!r}"
            for key in changed
            if key != "sources"
        )
    return "its files have not the size that they had"


def _tokenizer(dataset: DatasetConfig) -> dict[str, Any]:
    if dataset.tokenizer in ("char", "gpt2"):
        return {"kind": dataset.tokenizer}
    path = Path(dataset.tokenizer)
    try:
        checksum = sha256_of_file(path)
    except OSError as error:
        raise FatalError(
            f"dataset.tokenizer: {path} cannot be read: {error}. If it was moved, set its new path"
        ) from error
    return {"kind": "tokenizer.json", "sha256": checksum, "end_of_text": dataset.end_of_text}


def _sources(dataset: DatasetConfig) -> list[dict[str, Any]]:
    if dataset.file is None:
        return [
            {"sha256": source.sha256} if source.sha256 else {"url": source.url}
            for source, _ in addresses(dataset)
        ]
    if dataset.sha256 is not None and not Path(dataset.file).is_dir():
        return [{"sha256": dataset.sha256}]
    found: list[dict[str, Any]] = []
    for source in local_sources(dataset):
        try:
            status = source.path.stat()
        except OSError as error:
            raise FatalError(f"dataset.file: {source.path} cannot be read: {error}") from error
        found.append(
            {
                "file": str(source.path),
                "size_bytes": status.st_size,
                "modified_ns": status.st_mtime_ns,
            }
        )
    return found

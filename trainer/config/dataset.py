"""The section `dataset` of a run."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.config.option import ANY_LINE, NAME, SHA256, URL, Form, option


@dataclass(frozen=True)
class SourceUrl:
    """One of several files from which a data set is downloaded."""

    url: str = option("", "http(s) address of the file", form=URL)
    sha256: str | None = option(None, "checksum of the file", form=SHA256)
    size_bytes: int | None = option(None, "size of the file in bytes", at_least=1)


@dataclass(frozen=True)
class DatasetConfig:
    """Where the text comes from and how it becomes tokens."""

    name: str = option("shakespeare-char", "directory below <data_root>/datasets", form=NAME)
    url: str | None = option(None, "http(s) address of the text", form=URL)
    file: str | None = option(None, "path of a local file or folder; wins over url and files")
    files: tuple[SourceUrl, ...] = option((), "several addresses, each with its checksum")
    sha256: str | None = option(None, "checksum of the text behind url or file", form=SHA256)
    size_bytes: int | None = option(
        None, "size in bytes of the text behind url or file", at_least=1
    )
    format: str = option(
        "auto",
        "what the files hold; auto: by their names",
        choices=("auto", "text", "jsonl", "parquet", "arrow", "bin"),
    )
    text_field: str = option(
        "text", "field of a JSON line, or column of a table, that holds the text", form=ANY_LINE
    )
    document_separator: str | None = option(
        None, "text between two documents of a plain text; none: each file is one document"
    )
    tokenizer: str = option(
        "char",
        "how text becomes tokens: char, gpt2, or the path of a tokenizer.json",
        form=Form(r"char|gpt2|.+\.json", "char, gpt2 or the path of a tokenizer.json"),
        likely=("char", "gpt2"),
    )
    end_of_text: str | None = option(
        None, "the token of a tokenizer.json that ends a document; none: one of the usual names"
    )
    val_share: float = option(
        0.1, "share of the data, at its end, that is for validation", above=0, below=1
    )
    val_tokens: int | None = option(
        None, "tokens for validation at most, instead of val_share", at_least=2
    )

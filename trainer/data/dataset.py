"""A prepared dataset: the format of its directory. Needs no torch.

<data_root>/datasets/<name>/train.bin   token ids, little-endian, nothing else: uint16, or uint32
                                        where the vocabulary has more than 65,536 entries
<data_root>/datasets/<name>/val.bin     the same, of the end of the data
<data_root>/datasets/<name>/meta.json   what was asked for, tokenizer, type of the tokens, and for
                                        each split: tokens, bytes of text, sha256
<data_root>/datasets/<name>/tokenizer.json   only where such a tokenizer was used
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from trainer.data.tokenizer import Tokenizer, Tokens, tokenizer_from_json
from trainer.launch.exit_codes import FatalError

META_FILE = "meta.json"


@dataclass(frozen=True)
class Dataset:
    """Both splits as read-only memory maps, shape (tokens,), with the metadata."""

    train: Tokens
    val: Tokens
    val_bytes: int
    tokenizer: Tokenizer
    fingerprint: str


def read_meta(directory: Path) -> dict[str, Any] | None:
    """The metadata of the dataset in `directory`, or None where there is no dataset."""
    try:
        return cast(dict[str, Any], json.loads((directory / META_FILE).read_text()))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise FatalError(f"{directory / META_FILE} is not JSON: {error}") from error


def open_dataset(directory: Path) -> Dataset:
    """Open a prepared dataset.

    Raises:
        FatalError: it is not there, or a split has not the size that the metadata promise.
    """
    meta = read_meta(directory)
    if meta is None:
        raise FatalError(
            f"no dataset in {directory}; make it with: python -m trainer prepare --config ..."
        )
    dtype = np.dtype(meta["dtype"])
    splits: dict[str, Tokens] = {}
    for split in ("train", "val"):
        path, expected = directory / f"{split}.bin", int(meta["splits"][split]["tokens"])
        size = path.stat().st_size if path.exists() else 0
        if size != expected * dtype.itemsize:
            raise FatalError(
                f"{path} has {size} bytes, {META_FILE} says {expected * dtype.itemsize}; "
                "remove the directory and prepare it again"
            )
        splits[split] = np.memmap(path, dtype, mode="r")
    return Dataset(
        train=splits["train"],
        val=splits["val"],
        val_bytes=int(meta["splits"]["val"]["bytes"]),
        tokenizer=tokenizer_from_json(meta["tokenizer"], directory),
        fingerprint=str(meta["splits"]["train"]["sha256"]),
    )

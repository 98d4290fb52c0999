"""A prepared dataset: the format of its directory, and batches out of it.

<data_root>/datasets/<name>/train.bin   token ids, little-endian uint16, nothing else
<data_root>/datasets/<name>/val.bin     the same, of the last tenth of the text
<data_root>/datasets/<name>/meta.json   source, tokenizer, and per split: tokens, bytes, sha256
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from trainer.exit_codes import FatalError
from trainer.tokenizer import Tokenizer, tokenizer_from_json

META_FILE = "meta.json"
TOKEN_DTYPE = np.dtype("<u2")


@dataclass(frozen=True)
class Dataset:
    """Both splits as read-only memory maps, shape (tokens,), with the metadata."""

    train: NDArray[np.uint16]
    val: NDArray[np.uint16]
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
    splits: dict[str, NDArray[np.uint16]] = {}
    for split in ("train", "val"):
        path, expected = directory / f"{split}.bin", int(meta["splits"][split]["tokens"])
        size = path.stat().st_size if path.exists() else 0
        if size != expected * TOKEN_DTYPE.itemsize:
            raise FatalError(
                f"{path} has {size} bytes, {META_FILE} says {expected * TOKEN_DTYPE.itemsize}; "
                "remove the directory and prepare it again"
            )
        splits[split] = np.memmap(path, TOKEN_DTYPE, mode="r")
    return Dataset(
        train=splits["train"],
        val=splits["val"],
        val_bytes=int(meta["splits"]["val"]["bytes"]),
        tokenizer=tokenizer_from_json(meta["tokenizer"]),
        fingerprint=str(meta["splits"]["train"]["sha256"]),
    )


def gather(
    tokens: NDArray[np.uint16], starts: NDArray[np.int64], length: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and next-token targets of the windows at `starts`.

    Returns two int64 tensors of shape (len(starts), length) on `device`.
    """
    windows = tokens[starts[:, None] + np.arange(length + 1)].astype(np.int64)
    batch = torch.from_numpy(windows)
    if device.type == "cuda":
        batch = batch.pin_memory().to(device, non_blocking=True)
    return batch[:, :-1], batch[:, 1:]

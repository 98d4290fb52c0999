"""Opens a prepared data set, and defines the format of its directory. It does not need torch.

<data_root>/datasets/<name>/train.bin   token ids, little-endian, nothing else: uint16, or uint32
                                        where the vocabulary has more than 65,536 entries
<data_root>/datasets/<name>/val.bin     the same for the validation split, the end of the data
<data_root>/datasets/<name>/meta.json   the requested settings, tokenizer, type of the tokens, and
                                        for each split: tokens, bytes of text, sha256
<data_root>/datasets/<name>/tokenizer.json   only if such a tokenizer was used
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainer.data.meta import META_FILE, read_meta, training_sha256
from trainer.data.tokenizer import Tokenizer, Tokens, tokenizer_from_json
from trainer.launch.exit_codes import FatalError


@dataclass(frozen=True)
class Dataset:
    """Both splits as read-only memory maps of shape (tokens,), with the metadata."""

    train: Tokens
    val: Tokens
    val_bytes: int
    tokenizer: Tokenizer
    fingerprint: str
    """The sha256 of the training tokens."""
    val_fingerprint: str
    """The sha256 of the validation tokens."""


def open_dataset(directory: Path) -> Dataset:
    """Open a prepared dataset.

    Raises:
        FatalError: There is no data set, or a split has another size than the metadata say.
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
        fingerprint=training_sha256(meta),
        val_fingerprint=str(meta["splits"]["val"]["sha256"]),
    )

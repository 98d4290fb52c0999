"""The documents of which tests make sources, and the data sets of these."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.ipc
import pyarrow.parquet

from trainer.config import RunConfig
from trainer.data.dataset import Dataset, open_dataset
from trainer.data.prepare import prepare

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


def write_parquet(folder: Path) -> Path:
    table = pyarrow.table({"id": range(len(DOCUMENTS)), "text": DOCUMENTS})
    pyarrow.parquet.write_table(table, folder / "d.parquet", row_group_size=70)
    return folder / "d.parquet"

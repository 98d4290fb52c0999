"""Checkpoints of a few bytes, in the form that they have on the volume."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from random import Random


def write_checkpoint(
    root: Path, step: int, val_loss: float | None = None, size_bytes: int = 1000, seed: int = 0
) -> dict[str, bytes]:
    """Write a complete checkpoint; return its files by name, with the manifest."""
    files = {
        "state.json": json.dumps({"step": step, "val_loss": val_loss}).encode(),
        "layout.json": b"{}",
        "tensors.bin": Random(f"{step} {seed}").randbytes(size_bytes),
    }
    entries = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in files.items()
    }
    files["manifest.json"] = json.dumps({"files": entries}).encode()
    folder = root / f"step-{step:08d}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return files


def files_of(root: Path, step: int) -> dict[str, bytes]:
    """Return the files of a checkpoint by name; empty if there is no such checkpoint."""
    folder = root / f"step-{step:08d}"
    return {path.name: path.read_bytes() for path in folder.glob("*") if path.is_file()}

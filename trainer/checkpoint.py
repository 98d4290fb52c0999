"""Checkpoints: directories that are complete or ignored.

    checkpoints/step-00000100/    100 updates are done
        model.pt                  tensors by parameter name
        optimizer.pt              tensors by parameter name and kind
        state.json                everything that is no tensor
        manifest.json             size and sha256 of the files above

A checkpoint is written under a temporary name, made durable and renamed. Nothing points to the
latest one: it is found by verifying, newest first. Tensors are read with weights_only=True, so a
file can not run code.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import torch

from trainer.durable import fsync_directory, fsync_file, sha256_of, write_json

MANIFEST_FILE = "manifest.json"
STATE_FILE = "state.json"
_DIRECTORY = re.compile(r"step-(\d{8})")
_TEMPORARY_PREFIX = ".tmp-"
_DAMAGED_PREFIX = "damaged-"
_REPLACED_PREFIX = ".replaced-"


def directory_of(root: Path, step: int) -> Path:
    """The directory of the checkpoint after `step` updates."""
    return root / f"step-{step:08d}"


def all_steps(root: Path) -> list[int]:
    """Steps of the directories with a checkpoint's name, newest first, verified or not."""
    if not root.is_dir():
        return []
    matches = [_DIRECTORY.fullmatch(path.name) for path in root.iterdir() if path.is_dir()]
    return sorted((int(match[1]) for match in matches if match), reverse=True)


def save(
    root: Path,
    step: int,
    tensors: Mapping[str, Mapping[str, Any]],
    state: Mapping[str, Any],
    keep_last: int,
    keep_best: bool,
) -> None:
    """Write the checkpoint of `step`, then remove older ones that need not stay.

    One that is there for the same step stays until the new one is complete.

    Args:
        root: directory of all checkpoints of the run; only one process may save into it.
        tensors: per file stem ("model", "optimizer") a nested mapping of names to tensors.
        state: JSON values, returned by `load_state`; "val_loss" decides which one is best.
        keep_last: how many of the newest stay.
        keep_best: whether the one with the lowest validation loss stays, however old.

    Raises:
        OSError: the disk is full or fails; the earlier checkpoints are untouched.
    """
    root.mkdir(parents=True, exist_ok=True)
    building = root / f"{_TEMPORARY_PREFIX}{directory_of(root, step).name}-{os.getpid()}"
    try:
        building.mkdir()
        for name, values in tensors.items():
            _save_tensors(dict(values), building / f"{name}.pt")
        write_json(building / STATE_FILE, {"step": step, **state})
        files = sorted(building.iterdir())
        for path in files:
            fsync_file(path)
        manifest = {
            path.name: {"bytes": path.stat().st_size, "sha256": sha256_of(path)} for path in files
        }
        write_json(building / MANIFEST_FILE, {"files": manifest})
        replaced = _set_replaced_aside(directory_of(root, step))
        building.rename(directory_of(root, step))
        fsync_directory(root)
        shutil.rmtree(replaced, ignore_errors=True)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    complete = complete_steps(root)
    best = best_step(root) if keep_best else None
    for old in complete[keep_last:]:
        if old != best:
            _discard(directory_of(root, old))


def best_step(root: Path) -> int | None:
    """Step of the complete checkpoint with the lowest validation loss; None where none has one."""
    losses = [(val_loss(root, step), step) for step in complete_steps(root)]
    measured = [(loss, step) for loss, step in losses if loss is not None]
    return min(measured)[1] if measured else None


def val_loss(root: Path, step: int) -> float | None:
    """The validation loss of a checkpoint, None where none was measured at that step."""
    try:
        value = load_state(root, step).get("val_loss")
    except (OSError, ValueError):
        return None
    return float(value) if isinstance(value, float | int) else None


def complete_steps(root: Path) -> list[int]:
    """Steps of the checkpoints whose files have the right sizes, newest first."""
    return [step for step in all_steps(root) if not _problem(directory_of(root, step), False)]


def _save_tensors(values: dict[str, Any], path: Path) -> None:
    with path.open("wb") as file:
        try:
            torch.save(values, file)
        except RuntimeError as error:
            # A write that fails inside a file comes out of torch.save as "unexpected pos".
            if isinstance(error.__context__, OSError):
                raise error.__context__ from error
            raise


def remove_leftovers(root: Path) -> None:
    """Remove what an interrupted save left. Only for the process that saves, before it saves."""
    for path in root.glob(f"{_REPLACED_PREFIX}*"):
        # It is whole unless its successor is in place: only then it is removed.
        final = root / path.name.removeprefix(_REPLACED_PREFIX)
        if final.exists():
            shutil.rmtree(path)
        else:
            path.rename(final)
    for path in root.glob(f"{_TEMPORARY_PREFIX}*"):
        shutil.rmtree(path)


def set_damaged_aside(root: Path, newest_good: int | None) -> None:
    """Rename those after `newest_good`, so that they never count as one of those that stay.

    They keep their files, as damaged-step-<number>.
    """
    for step in all_steps(root):
        if newest_good is None or step > newest_good:
            aside = root / f"{_DAMAGED_PREFIX}{directory_of(root, step).name}"
            shutil.rmtree(aside, ignore_errors=True)
            directory_of(root, step).rename(aside)


def latest_verified(
    root: Path,
    say: Callable[[str], None],
    further_problem: Callable[[int], str | None] = lambda step: None,
) -> int | None:
    """Step of the newest checkpoint whose files all match the manifest, or None.

    Says one line for each newer one that had to be skipped, with the reason. `further_problem`
    may name a reason against a checkpoint that is as it was written.
    """
    for step in all_steps(root):
        problem = _problem(directory_of(root, step), True) or further_problem(step)
        if problem is None:
            return step
        say(f"checkpoint {directory_of(root, step).name} skipped: {problem}")
    return None


def load_state(root: Path, step: int) -> dict[str, Any]:
    """The JSON values that were saved with the checkpoint."""
    path = directory_of(root, step) / STATE_FILE
    return cast(dict[str, Any], json.loads(path.read_text()))


def load_tensors(root: Path, step: int, name: str, device: torch.device) -> dict[str, Any]:
    """The tensors of one file, on `device`."""
    path = directory_of(root, step) / f"{name}.pt"
    return cast(dict[str, Any], torch.load(path, map_location=device, weights_only=True))


def _problem(directory: Path, with_checksums: bool) -> str | None:
    """Why this is no complete checkpoint, or None."""
    try:
        manifest = json.loads((directory / MANIFEST_FILE).read_text())
        files = {str(name): dict(entry) for name, entry in manifest["files"].items()}
        if STATE_FILE not in files:
            return f"{MANIFEST_FILE} does not list {STATE_FILE}"
        for name, entry in files.items():
            path = directory / name
            if not path.is_file():
                return f"{name} is missing"
            if (size := path.stat().st_size) != entry["bytes"]:
                return f"{name} has {size} bytes, {MANIFEST_FILE} says {entry['bytes']}"
            if with_checksums and sha256_of(path) != entry["sha256"]:
                return f"{name} does not have the sha256 of {MANIFEST_FILE}"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except OSError as error:
        return f"cannot be read: {error}"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{MANIFEST_FILE} is damaged: {error!r}"
    return None


def _set_replaced_aside(directory: Path) -> Path:
    """Make room for another checkpoint of the same step; returns where the old one is, if any."""
    aside = directory.with_name(f"{_REPLACED_PREFIX}{directory.name}")
    if directory.exists():
        directory.rename(aside)
    return aside


def _discard(directory: Path) -> None:
    """Remove a checkpoint such that it never looks like a damaged one in between."""
    if directory.exists():
        doomed = directory.with_name(f"{_TEMPORARY_PREFIX}old-{directory.name}-{os.getpid()}")
        directory.rename(doomed)
        shutil.rmtree(doomed)

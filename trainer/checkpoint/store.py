"""Manages the directories of a run's checkpoints: puts them in place and verifies them.

    checkpoints/step-00000100/    the checkpoint after 100 updates
        model-00003.bin           the part of the weights that rank 3 wrote, as raw bytes
        optimizer-00003.bin       the same for the state of the optimizer
        layout.json               which bytes are which part of which tensor
        state.json                all values that are no tensors
        manifest.json             size and sha256 of the files above

A checkpoint is used only if manifest.json matches every file. It is written under a temporary name,
made durable and renamed. No file points to the latest checkpoint: it is found by verifying the
directories, newest first. Reading a checkpoint cannot run code. A file that cannot be read is not
taken for a damaged file, but leads to an error.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from trainer.checkpoint.durable import fsync_directory, sha256_of, write_json
from trainer.launch.exit_codes import FatalError, RetryableError

if TYPE_CHECKING:
    from trainer.checkpoint.layout import Layout

MANIFEST_FILE = "manifest.json"
STATE_FILE = "state.json"
LAYOUT_FILE = "layout.json"
_DIRECTORY = re.compile(r"step-(\d{8,})")
TEMPORARY_PREFIX = ".tmp-"
_DAMAGED_PREFIX = "damaged-"
_REPLACED_PREFIX = ".replaced-"


def directory_of(root: Path, step: int) -> Path:
    """Return the directory of the checkpoint after `step` updates."""
    return root / f"step-{step:08d}"


def step_of(name: str) -> int | None:
    """Return the step in the name of a checkpoint's directory, or None for any other name."""
    match = _DIRECTORY.fullmatch(name)
    return int(match[1]) if match else None


def all_steps(root: Path) -> list[int]:
    """List the steps of all directories with a checkpoint's name, newest first, unverified."""
    if not root.is_dir():
        return []
    steps = [step_of(path.name) for path in root.iterdir() if path.is_dir()]
    return sorted((step for step in steps if step is not None), reverse=True)


def newest_name(root: Path) -> str:
    """Return the name of the newest checkpoint's directory, unverified; empty if there is none.

    It is empty, too, if this process may not read `root`: that is for the ranks to report.
    """
    steps = [step for path in root.glob("step-*") if (step := step_of(path.name)) is not None]
    return directory_of(root, max(steps)).name if steps else ""


def building_directory(root: Path, step: int, tag: str) -> Path:
    """Return the directory into which all ranks write a checkpoint. `tag` makes its name new."""
    return root / f"{TEMPORARY_PREFIX}{directory_of(root, step).name}-{tag}"


def commit(
    building: Path,
    step: int,
    files: Mapping[str, Mapping[str, Any]],
    before_rename: Callable[[], None] = lambda: None,
) -> None:
    """Put the checkpoint of `step` in place. Its files are already durable in `building`.

    An earlier checkpoint of the same step stays until the new one is complete.

    Args:
        building: The temporary directory, beside the other checkpoints of the run.
        step: The number of updates in the checkpoint.
        files: The manifest's entry for each file: "bytes" and "sha256".
        before_rename: Raises an error if this process must not write beside `building` any more.

    Raises:
        OSError: The disk is full or fails. No earlier checkpoint is lost.
    """
    root, final = building.parent, directory_of(building.parent, step)
    try:
        write_json(building / MANIFEST_FILE, {"files": files})  # all names in it are durable now
        before_rename()
        replaced = _set_replaced_aside(final)
        building.rename(final)
        fsync_directory(root)
        shutil.rmtree(replaced, ignore_errors=True)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def complete_steps(root: Path) -> list[int]:
    """List the steps of checkpoints whose files have the right sizes, newest first.

    Raises OSError.
    """
    return [
        step
        for step in all_steps(root)
        if not problem(directory_of(root, step), lambda name: False)
    ]


def remove_leftovers(root: Path, say: Callable[[str], None]) -> None:
    """Remove the directories that an interrupted save has left.

    Only the process that saves may call this, before its first save.
    """
    for path in root.glob(f"{_REPLACED_PREFIX}*"):
        # It may be incomplete only if its successor is in place. Only then it is removed.
        final = root / path.name.removeprefix(_REPLACED_PREFIX)
        if final.exists():
            remove_or_say(path, say)
        else:
            path.rename(final)
    for path in root.glob(f"{TEMPORARY_PREFIX}*"):
        remove_or_say(path, say)


def remove_or_say(directory: Path, say: Callable[[str], None]) -> None:
    """Remove a directory. A network storage may refuse this while a file in it is open."""
    try:
        shutil.rmtree(directory)
    except OSError as error:
        say(f"{directory.name} could not be removed: {error}")


def set_damaged_aside(root: Path, newest_good: int | None) -> None:
    """Rename the checkpoints after `newest_good` to damaged-step-<number>; they keep their files.

    Otherwise `retention.prune` could keep them in place of good ones. If an earlier start has
    already renamed a checkpoint of the same step, that one is removed. But if `newest_good` is
    None, the run starts over, and its checkpoints may be undamaged. Then none is removed: of two
    checkpoints of one step, the later one gets a number at the end of its name.
    """
    for step in all_steps(root):
        if newest_good is None or step > newest_good:
            name = f"{_DAMAGED_PREFIX}{directory_of(root, step).name}"
            aside = root / name
            if newest_good is None:
                further = (root / f"{name}-{number}" for number in count(2))
                aside = next(path for path in chain([aside], further) if not path.exists())
            shutil.rmtree(aside, ignore_errors=True)
            directory_of(root, step).rename(aside)


def set_aside_names(root: Path) -> list[str]:
    """List the names of the directories that `set_damaged_aside` has renamed, sorted."""
    return sorted(path.name for path in root.glob(f"{_DAMAGED_PREFIX}*"))


def latest_verified(root: Path, say: Callable[[str], None], kind: str = "") -> int | None:
    """Return the step of the newest checkpoint whose files match its manifest, or None.

    For each newer checkpoint that is skipped, a line with the reason is printed.

    Args:
        root: The directory of all checkpoints of the run.
        say: Prints a line.
        kind: With "model", the bytes of the optimizer's files are not read.

    Raises:
        FatalError: This process may not read a checkpoint.
        RetryableError: The storage fails, or there is too little memory.
    """
    with unreadable_is_no_damage(f"list in {root}"):
        steps = all_steps(root)
    for step in steps:
        name = directory_of(root, step).name
        with unreadable_is_no_damage(name):
            reason = problem(
                directory_of(root, step),
                lambda file: file.startswith(kind) or file.endswith(".json"),
            )
        if reason is None:
            return step
        say(f"checkpoint {name} skipped: {reason}")
    return None


@contextmanager
def unreadable_is_no_damage(name: str) -> Iterator[None]:
    """Turn an OSError or a MemoryError while checkpoint `name` is read into an error with advice.

    Raises:
        FatalError: This process may not read the checkpoint.
        RetryableError: The storage fails, or there is too little memory.
    """
    try:
        yield
    except OSError as error:
        raise_unreadable(name, error)
    except MemoryError as error:
        raise RetryableError(f"there is too little memory to read {name}: {error}") from error


def raise_unreadable(name: str, error: OSError) -> NoReturn:
    """Raise an error that says that a checkpoint cannot be read, and not that it is damaged."""
    text = f"checkpoint {name} cannot be read ({error}); it was left as it is"
    if error.errno in (errno.EACCES, errno.EPERM):
        raise FatalError(
            f"{text}. This process runs as user {os.getuid()}: give that user the right to read "
            "and write the whole run directory"
        ) from error
    raise RetryableError(text) from error


def load_state(root: Path, step: int) -> dict[str, Any]:
    """Return the JSON values that were saved with the checkpoint."""
    path = directory_of(root, step) / STATE_FILE
    return cast(dict[str, Any], json.loads(path.read_text()))


def load_layout(root: Path, step: int) -> Layout:
    """Return the places of the checkpoint's tensors. Raises OSError or ValueError."""
    from trainer.checkpoint.layout import from_text  # It imports torch, which takes seconds.

    return from_text((directory_of(root, step) / LAYOUT_FILE).read_text())


def problem(directory: Path, is_read: Callable[[str], bool] = lambda name: True) -> str | None:
    """Say why this is no complete checkpoint, or return None.

    All files must exist with the sizes in the manifest. The files for which `is_read` returns True
    are read, and must have the checksums in the manifest. Raises OSError if a file cannot be read.
    """
    try:
        manifest = json.loads((directory / MANIFEST_FILE).read_text())
        files = {str(name): dict(entry) for name, entry in manifest["files"].items()}
        for name in (STATE_FILE, LAYOUT_FILE):
            if name not in files:
                return f"{MANIFEST_FILE} does not list {name}"
        for name, entry in files.items():
            path = directory / name
            if (size := path.stat().st_size) != entry["bytes"]:
                return f"{name} has {size} bytes, {MANIFEST_FILE} says {entry['bytes']}"
        for name, entry in files.items():
            if is_read(name) and sha256_of(directory / name) != entry["sha256"]:
                return f"{name} does not have the sha256 of {MANIFEST_FILE}"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except IsADirectoryError as error:
        return f"{Path(error.filename).name} is a directory"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{MANIFEST_FILE} is damaged: {error!r}"
    return None


def files_of(root: Path, step: int) -> list[str]:
    """List the names in the manifest, sorted; [] if it is damaged or missing. Raises OSError."""
    try:
        manifest = json.loads((directory_of(root, step) / MANIFEST_FILE).read_text())
        return sorted(str(name) for name in manifest["files"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return []


def _set_replaced_aside(directory: Path) -> Path:
    """Rename an earlier checkpoint of the same step, if there is one, and return its new path."""
    aside = directory.with_name(f"{_REPLACED_PREFIX}{directory.name}")
    if directory.exists():
        shutil.rmtree(aside, ignore_errors=True)  # Its successor `directory` is in place.
        directory.rename(aside)
    return aside

"""Each checkpoint is one directory. A reader takes it only if manifest.json matches every file.

    checkpoints/step-00000100/    100 updates are done
        model-00003.bin           what rank 3 wrote of the weights: raw bytes
        optimizer-00003.bin       the same of the optimiser's state
        layout.json               which bytes are which part of which tensor
        state.json                everything that is no tensor
        manifest.json             size and sha256 of the files above

A checkpoint is written under a temporary name, made durable and renamed. Nothing points to the
latest one: it is found by verifying, newest first. Nothing in it can run code. A file that cannot
be read is no damaged file: that is an error of its own.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from trainer.checkpoint.durable import fsync_directory, sha256_of, write_json
from trainer.launch.exit_codes import FatalError, RetryableError

if TYPE_CHECKING:
    from trainer.checkpoint.layout import Layout

MANIFEST_FILE = "manifest.json"
STATE_FILE = "state.json"
LAYOUT_FILE = "layout.json"
_DIRECTORY = re.compile(r"step-(\d{8})")
TEMPORARY_PREFIX = ".tmp-"
_DAMAGED_PREFIX = "damaged-"
_REPLACED_PREFIX = ".replaced-"


def directory_of(root: Path, step: int) -> Path:
    """The directory of the checkpoint after `step` updates."""
    return root / f"step-{step:08d}"


def step_of(name: str) -> int | None:
    """The step in the name of a checkpoint's directory; None: it is no such name."""
    match = _DIRECTORY.fullmatch(name)
    return int(match[1]) if match else None


def all_steps(root: Path) -> list[int]:
    """Steps of the directories with a checkpoint's name, newest first, verified or not."""
    if not root.is_dir():
        return []
    steps = [step_of(path.name) for path in root.iterdir() if path.is_dir()]
    return sorted((step for step in steps if step is not None), reverse=True)


def building_directory(root: Path, step: int, tag: str) -> Path:
    """Where all ranks write the checkpoint of `step`; `tag` makes the name a new one."""
    return root / f"{TEMPORARY_PREFIX}{directory_of(root, step).name}-{tag}"


def commit(
    building: Path,
    step: int,
    files: Mapping[str, Mapping[str, Any]],
    before_rename: Callable[[], None] = lambda: None,
) -> None:
    """Put the checkpoint of `step` in place, whose files are durable in `building`.

    One that is there for the same step stays until the new one is complete.

    Args:
        building: its temporary directory, beside the other checkpoints of the run.
        step: number of updates that are done.
        files: the manifest's entry of each file: "bytes" and "sha256".
        before_rename: raises where this process must not write beside `building` any more.

    Raises:
        OSError: the disk is full or fails; the earlier checkpoints are untouched.
    """
    root, final = building.parent, directory_of(building.parent, step)
    try:
        write_json(building / MANIFEST_FILE, {"files": files})
        fsync_directory(building)
        before_rename()
        replaced = _set_replaced_aside(final)
        building.rename(final)
        fsync_directory(root)
        shutil.rmtree(replaced, ignore_errors=True)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def prune(
    root: Path,
    keep_last: int,
    keep_best: bool,
    say: Callable[[str], None],
    held_step: int | None = None,
) -> None:
    """Remove the complete checkpoints that need not stay; what cannot be removed is said.

    Args:
        root: directory of all checkpoints of the run.
        keep_last: how many of the newest stay.
        keep_best: whether the one with the lowest validation loss stays, however old.
        say: told of a checkpoint that could not be removed; it is tried again at the next start.
        held_step: one that stays although it need not, because it is being copied elsewhere.
    """
    try:
        best = best_step(root) if keep_best else None
        stay = (best, held_step)
        doomed = [step for step in complete_steps(root)[keep_last:] if step not in stay]
    except OSError as error:
        say(f"old checkpoints were not looked at: {error}")
        return
    for step in doomed:
        try:
            _discard(directory_of(root, step))
        except OSError as error:
            say(f"checkpoint {directory_of(root, step).name} could not be removed: {error}")


def best_step(root: Path) -> int | None:
    """Step of the complete checkpoint with the lowest validation loss; None where none has one."""
    losses = [(val_loss(root, step), step) for step in complete_steps(root)]
    measured = [(loss, step) for loss, step in losses if loss is not None]
    return min(measured)[1] if measured else None


def val_loss(root: Path, step: int) -> float | None:
    """The validation loss of a checkpoint, None where none was measured at that step.

    Raises OSError where it cannot be read: nobody may take that for a checkpoint without one.
    """
    try:
        value = load_state(root, step).get("val_loss")
    except (FileNotFoundError, ValueError):
        return None
    return float(value) if isinstance(value, float | int) else None


def complete_steps(root: Path) -> list[int]:
    """Steps of the checkpoints whose files have the right sizes, newest first. Raises OSError."""
    return [
        step
        for step in all_steps(root)
        if not problem(directory_of(root, step), lambda name: False)
    ]


def remove_leftovers(root: Path, say: Callable[[str], None]) -> None:
    """Remove what an interrupted save left. Only for the process that saves, before it saves."""
    for path in root.glob(f"{_REPLACED_PREFIX}*"):
        # It is whole unless its successor is in place: only then it is removed.
        final = root / path.name.removeprefix(_REPLACED_PREFIX)
        if final.exists():
            _remove(path, say)
        else:
            path.rename(final)
    for path in root.glob(f"{TEMPORARY_PREFIX}*"):
        _remove(path, say)


def _remove(directory: Path, say: Callable[[str], None]) -> None:
    """Remove a directory; network storage refuses while a file of it is open somewhere."""
    try:
        shutil.rmtree(directory)
    except OSError as error:
        say(f"{directory.name} could not be removed: {error}")


def set_damaged_aside(root: Path, newest_good: int | None) -> None:
    """Rename those after `newest_good`, so that they never count as one of those that stay.

    They keep their files, as damaged-step-<number>.
    """
    for step in all_steps(root):
        if newest_good is None or step > newest_good:
            aside = root / f"{_DAMAGED_PREFIX}{directory_of(root, step).name}"
            shutil.rmtree(aside, ignore_errors=True)
            directory_of(root, step).rename(aside)


def set_aside_names(root: Path) -> list[str]:
    """Names of the directories that `set_damaged_aside` has renamed, sorted."""
    return sorted(path.name for path in root.glob(f"{_DAMAGED_PREFIX}*"))


def latest_verified(root: Path, say: Callable[[str], None], kind: str = "") -> int | None:
    """Step of the newest checkpoint whose files match the manifest, or None.

    Says one line for each newer one that had to be skipped, with the reason.

    Args:
        root: directory of all checkpoints of the run.
        say: prints a line.
        kind: where it is "model", the bytes of the optimiser's files are not read.

    Raises:
        FatalError: this process may not read a checkpoint.
        RetryableError: the storage fails, or there is too little memory.
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
    """Say what an OSError or a MemoryError means while checkpoint `name` is read.

    Raises:
        FatalError: this process may not read it.
        RetryableError: the storage fails, or there is too little memory.
    """
    try:
        yield
    except OSError as error:
        raise_unreadable(name, error)
    except MemoryError as error:
        raise RetryableError(f"there is too little memory to read {name}: {error}") from error


def raise_unreadable(name: str, error: OSError) -> NoReturn:
    """Say that a checkpoint cannot be read, which does not mean that it is damaged."""
    text = f"checkpoint {name} cannot be read ({error}); it was left as it is"
    if error.errno in (errno.EACCES, errno.EPERM):
        raise FatalError(
            f"{text}. This process runs as user {os.getuid()}: give that user the right to read "
            "and write the whole run directory"
        ) from error
    raise RetryableError(text) from error


def load_state(root: Path, step: int) -> dict[str, Any]:
    """The JSON values that were saved with the checkpoint."""
    path = directory_of(root, step) / STATE_FILE
    return cast(dict[str, Any], json.loads(path.read_text()))


def load_layout(root: Path, step: int) -> Layout:
    """Where the tensors of the checkpoint are. Raises OSError, ValueError."""
    from trainer.checkpoint.layout import from_text  # here, since it takes torch's seconds

    return from_text((directory_of(root, step) / LAYOUT_FILE).read_text())


def problem(directory: Path, is_read: Callable[[str], bool] = lambda name: True) -> str | None:
    """Why this is no complete checkpoint, or None. Raises OSError where a file cannot be read.

    All files must be there with their sizes; those of which `is_read` is true are read and must
    have their checksums.
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
    """The names in the manifest, sorted; [] where it cannot be understood. Raises OSError."""
    try:
        manifest = json.loads((directory_of(root, step) / MANIFEST_FILE).read_text())
        return sorted(str(name) for name in manifest["files"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return []


def _set_replaced_aside(directory: Path) -> Path:
    """Make room for another checkpoint of the same step; returns where the old one is, if any."""
    aside = directory.with_name(f"{_REPLACED_PREFIX}{directory.name}")
    if directory.exists():
        shutil.rmtree(aside, ignore_errors=True)  # `directory` is its successor, and in place
        directory.rename(aside)
    return aside


def _discard(directory: Path) -> None:
    """Remove a checkpoint such that it never looks like a damaged one in between."""
    if directory.exists():
        doomed = directory.with_name(f"{TEMPORARY_PREFIX}old-{directory.name}-{os.getpid()}")
        directory.rename(doomed)
        shutil.rmtree(doomed)

"""Decides which checkpoints of a run stay, and removes the others."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from trainer.checkpoint.store import (
    TEMPORARY_PREFIX,
    complete_steps,
    directory_of,
    load_state,
    remove_or_say,
)

_OLD_PREFIX = f"{TEMPORARY_PREFIX}old-"


def prune(
    root: Path,
    keep_last: int,
    keep_best: bool,
    say: Callable[[str], None],
    held_step: int | None = None,
) -> None:
    """Remove the complete checkpoints that are no longer needed, and remains of earlier removals.

    Only the process that saves may call this.

    Args:
        root: The directory of all checkpoints of the run.
        keep_last: How many of the newest checkpoints stay.
        keep_best: Whether the checkpoint with the lowest validation loss stays, however old it is.
        say: Prints a line about a checkpoint that could not be removed. Its removal is repeated
            after the next save or at the next start.
        held_step: The step of a checkpoint that stays because it is being copied to the mirror.
    """
    try:
        best = best_step(root) if keep_best else None
        stay = (best, held_step)
        doomed = [step for step in complete_steps(root)[keep_last:] if step not in stay]
        remains = list(root.glob(f"{_OLD_PREFIX}*"))
    except OSError as error:
        say(f"old checkpoints were not looked at: {error}")
        return
    for path in remains:
        remove_or_say(path, say)
    for step in doomed:
        try:
            _discard(directory_of(root, step))
        except OSError as error:
            say(f"checkpoint {directory_of(root, step).name} could not be removed: {error}")


def best_step(root: Path) -> int | None:
    """Return the step of the complete checkpoint with the lowest validation loss, or None."""
    losses = [(val_loss(root, step), step) for step in complete_steps(root)]
    measured = [(loss, step) for loss, step in losses if loss is not None]
    return min(measured)[1] if measured else None


def val_loss(root: Path, step: int) -> float | None:
    """Return the validation loss of a checkpoint, or None if none was measured at its step.

    Raises OSError if it cannot be read, so that this is not taken for a checkpoint without a loss.
    """
    try:
        value = load_state(root, step).get("val_loss")
    except (FileNotFoundError, ValueError):
        return None
    return float(value) if isinstance(value, float | int) else None


def _discard(directory: Path) -> None:
    """Remove a checkpoint, so that it never looks like a damaged one in the meantime."""
    if directory.exists():
        doomed = directory.with_name(f"{_OLD_PREFIX}{directory.name}-{os.getpid()}")
        directory.rename(doomed)
        shutil.rmtree(doomed)

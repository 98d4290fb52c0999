"""Decides which checkpoint to copy to the mirror, and which ones to remove from it.

This module does no input or output.
"""

from __future__ import annotations

from collections.abc import Mapping


def next_to_copy(
    local: Mapping[int, bytes], remote: Mapping[int, bytes], best: int | None
) -> int | None:
    """Return the step of the checkpoint to copy next: the newest first, then the best.

    Args:
        local: The manifests of the complete checkpoints on the volume, by step.
        remote: The manifests in the mirror, by step.
        best: The step of the checkpoint with the lowest validation loss that has to stay, if any.
    """
    newest = max(local, default=None)
    for step in (newest, best):
        if step is not None and step in local and remote.get(step) != local[step]:
            return step
    return None


def too_many(
    remote: Mapping[int, float | None], newest_local: int, keep_last: int, best_local: int | None
) -> list[int]:
    """Return the steps of the checkpoints to remove from the mirror, by the volume's own rule.

    Checkpoints that are newer than all on the volume are left alone: the run was set back, and will
    replace them when it gets there again. The volume's best checkpoint stays, too, if the mirror
    has a better one from before. Otherwise `next_to_copy` would name it again at once. But a copy
    of it without a loss is damaged, and is removed so that it is copied anew.

    Args:
        remote: The validation losses of the complete checkpoints in the mirror, by step; None if
            none was measured, or if the best checkpoint need not stay.
        newest_local: The newest step on the volume.
        keep_last: How many of the newest checkpoints stay.
        best_local: The step of the volume's best checkpoint that has to stay, if any.
    """
    ours = sorted((step for step in remote if step <= newest_local), reverse=True)
    losses = [(loss, step) for step, loss in remote.items() if loss is not None]
    stay = {min(losses)[1], best_local} if losses else set[int | None]()
    return [step for step in ours[keep_last:] if step not in stay or remote[step] is None]

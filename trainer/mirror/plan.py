"""Which checkpoints the mirror lacks, and which it holds too many. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping


def next_to_copy(
    local: Mapping[int, bytes], remote: Mapping[int, bytes], best: int | None
) -> int | None:
    """The step of the checkpoint to copy next: the newest first, then the best.

    Args:
        local: manifests of the complete checkpoints of the volume, by step.
        remote: manifests in the mirror, by step.
        best: step of the checkpoint with the lowest validation loss that has to stay, if any.
    """
    newest = max(local, default=None)
    for step in (newest, best):
        if step is not None and step in local and remote.get(step) != local[step]:
            return step
    return None


def too_many(remote: Mapping[int, float | None], newest_local: int, keep_last: int) -> list[int]:
    """Steps in the mirror that need not stay, by the rule that the volume has too.

    One that is newer than all of the volume is left alone: the run was set back, and will replace
    it when it gets there again.

    Args:
        remote: validation losses of the complete checkpoints in the mirror, by step; None where
            none was measured, or where the best one need not stay.
        newest_local: the newest step of the volume.
        keep_last: how many of the newest stay.
    """
    ours = sorted((step for step in remote if step <= newest_local), reverse=True)
    losses = [(loss, step) for step, loss in remote.items() if loss is not None]
    best = min(losses)[1] if losses else None
    return [step for step in ours[keep_last:] if step != best]

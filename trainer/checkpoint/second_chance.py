"""Decides whether trouble is retryable (the first time) or fatal (the second time).

A bad GPU or a fragmented allocator can cause a loss that is not finite, or too little memory. A
restart from the last checkpoint may mend that. If the same trouble happens again at the same place,
the settings have to change.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from trainer.checkpoint.durable import write_json
from trainer.launch.exit_codes import FatalError, RetryableError
from trainer.parallel.world import World

_RECORD = "trouble-rank-{}.json"  # below the directory of the run


def happened_before(run_dir: Path, rank: int, what: str, where: str) -> bool:
    """Whether this rank's last recorded trouble is of the same kind and at the same place.

    If it is not, this trouble is recorded instead. If the volume does not allow that, a line says
    so, and the result is False: an error of the volume must not hide the trouble itself.

    Args:
        run_dir: The directory of the run, which holds the record.
        rank: The rank of the process that met the trouble.
        what: The kind of trouble.
        where: The step of the trouble, or the checkpoint from which the run had continued.
    """
    path, trouble = run_dir / _RECORD.format(rank), {"what": what, "where": where}
    try:
        if json.loads(path.read_text()) == trouble:
            return True
    except (OSError, ValueError):
        pass
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        write_json(path, trouble)
    except OSError as error:
        print(f"rank {rank}: {what} {where} could not be noted in {path}: {error}", flush=True)
    return False


def forget_trouble(run_dir: Path) -> None:
    """Remove the records of all ranks, because the run is finished. Only rank 0 calls this."""
    with suppress(OSError):  # The run is finished nevertheless.
        for path in run_dir.glob(_RECORD.format("*")):
            path.unlink(missing_ok=True)


def raise_diverged(run_dir: Path, world: World, step: int, what: str, newest: int) -> NoReturn:
    """End the training, because a loss or a gradient is not finite. All ranks must call this.

    Args:
        run_dir: The directory of the run, which holds the record of the trouble.
        world: The ranks of the run.
        step: The first step whose loss or gradient is not finite.
        what: The numbers that show it, in words.
        newest: The step of the newest checkpoint; 0 if there is none.

    Raises:
        RetryableError: It happens at this step for the first time.
        FatalError: The last recorded trouble was the same, at the same step.
    """
    again = world.is_main and happened_before(run_dir, 0, "diverged", f"step {step}")
    where = f"the newest checkpoint is of step {newest}" if newest else "there is no checkpoint yet"
    text = f"step {step} diverged: {what}; {where}"
    if world.any(again):
        older = (
            ". If that does not help, the weights in the newest checkpoint are bad already: move "
            "it out of the folder checkpoints (and its copy out of checkpoint.mirror, if set), and "
            "the run continues from the one before"
        )
        raise FatalError(
            f"{text}; it did so at the start before this one too. Lower train.learning_rate, or "
            f"set train.grad_clip to a lower value above 0{older if newest else ''}"
        )
    raise RetryableError(f"{text} (if it diverges at that step again, the run fails)")

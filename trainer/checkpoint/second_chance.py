"""Decides whether trouble is retryable (the first time) or fatal (the second time).

A bad GPU or a fragmented allocator can cause a loss that is not finite, or too little memory. A
restart from the last checkpoint may mend that. If the same trouble happens again at the same place,
the settings have to change.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

from trainer.checkpoint.durable import write_json
from trainer.launch.exit_codes import FatalError, RetryableError
from trainer.parallel.world import World


def happened_before(run_dir: Path, rank: int, what: str, where: str) -> bool:
    """Whether this rank's last recorded trouble is of the same kind and at the same place.

    If it is not, this trouble is recorded instead.

    Args:
        run_dir: The directory of the run, which holds the record.
        rank: The rank of the process that met the trouble.
        what: The kind of trouble.
        where: The step of the trouble, or the checkpoint from which the run had continued.
    """
    path, trouble = run_dir / f"trouble-rank-{rank}.json", {"what": what, "where": where}
    try:
        if json.loads(path.read_text()) == trouble:
            return True
    except (FileNotFoundError, ValueError):
        pass
    write_json(path, trouble)
    return False


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
        raise FatalError(f"{text}; it did so at the start before this one too")
    raise RetryableError(f"{text}; trying once more")

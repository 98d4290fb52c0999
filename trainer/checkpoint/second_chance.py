"""Trouble that a restart from the last checkpoint may mend, and that is fatal the second time.

A single bad GPU or a fragmented allocator leads to a loss that is not finite, or to too little
memory. If the same happens again at the same place, it is the settings that have to change.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

from trainer.checkpoint.durable import write_json
from trainer.launch.exit_codes import FatalError, RetryableError
from trainer.parallel.world import World


def happened_before(run_dir: Path, rank: int, what: str, where: str) -> bool:
    """Whether this trouble was met at the same place by the start before; remembers it.

    Args:
        run_dir: directory of the run, where it is remembered.
        rank: of the process that met it.
        what: the kind of trouble.
        where: the step, or the checkpoint that the run had continued from.
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
    """End the training of all ranks, which call this together: a loss or a gradient is not finite.

    Args:
        run_dir: directory of the run, where it is remembered.
        world: all ranks.
        step: the first one that was lost.
        what: the numbers that show it, in words.
        newest: step of the newest checkpoint; 0: there is none.

    Raises:
        RetryableError: at the first time.
        FatalError: it happens at the same step as at the start before.
    """
    again = world.is_main and happened_before(run_dir, 0, "diverged", f"step {step}")
    where = f"the newest checkpoint is of step {newest}" if newest else "there is no checkpoint yet"
    text = f"step {step} diverged: {what}; {where}"
    if world.any(again):
        raise FatalError(f"{text}; it did so at the start before this one too")
    raise RetryableError(f"{text}; trying once more")

"""Trouble that a restart from the last checkpoint may mend, and that is fatal the second time.

A single bad GPU or a fragmented allocator leads to a loss that is not finite, or to too little
memory. If the same happens again at the same place, it is the settings that have to change.
"""

from __future__ import annotations

import json
from pathlib import Path

from trainer.checkpoint.durable import write_json


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

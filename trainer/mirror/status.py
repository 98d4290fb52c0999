"""Reads and writes `<run>/mirror.json`, which says how far the mirror is.

People read it, and so does the process that removes old checkpoints from the volume.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from trainer.checkpoint.durable import write_json

STATUS_FILE = "mirror.json"


@dataclass
class MirrorStatus:
    """How far the mirror is.

    Args:
        url: The URL of the folder of checkpoints in the mirror.
        newest_step: The step of the newest complete checkpoint in the mirror; None if there is
            none.
        copying_step: The step of the checkpoint that is being copied. It is not removed from the
            volume meanwhile.
        copied_files: The files of that checkpoint that are in the mirror already, so that a new
            start of the process does not copy them again.
        copied_manifest_sha256: The sha256 of that checkpoint's manifest, which differs for another
            save of the same step.
        owner: The name of this volume in the mirror; empty before its first copy (owner.py).
        problem: Why the mirror cannot go on; empty if it can.
        problem_since: When the problem began, in seconds since 1970.
    """

    url: str = ""
    newest_step: int | None = None
    copying_step: int | None = None
    copied_files: list[str] = field(default_factory=list[str])
    copied_manifest_sha256: str = ""
    owner: str = ""
    problem: str = ""
    problem_since: float | None = None

    def set_problem(self, problem: str) -> None:
        """Note a problem, and when the first problem of a series began; empty for no problem."""
        self.problem = problem
        if not problem:
            self.problem_since = None
        elif self.problem_since is None:
            self.problem_since = round(time.time(), 1)


def read_status(run_dir: Path) -> MirrorStatus:
    """Return the status of a run; an empty one if the file is missing or damaged."""
    try:
        return MirrorStatus(**json.loads((run_dir / STATUS_FILE).read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return MirrorStatus()


def write_status(run_dir: Path, status: MirrorStatus) -> None:
    """Write the status of a run in place of the old one."""
    write_json(run_dir / STATUS_FILE, asdict(status))


def note_problem(run_dir: Path, problem: str) -> None:
    """Write into the status of a run why its mirror cannot go on."""
    status = read_status(run_dir)
    status.set_problem(problem)
    write_status(run_dir, status)


def step_being_copied(run_dir: Path) -> int | None:
    """Return the step of the checkpoint that must stay on the volume until it is copied."""
    return read_status(run_dir).copying_step

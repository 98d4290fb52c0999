"""`<run>/mirror.json`: how far the mirror is, for people and for the process that removes files."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from trainer.checkpoint.durable import write_json

STATUS_FILE = "mirror.json"


@dataclass
class MirrorStatus:
    """Where the mirror stands.

    Args:
        url: of the mirror.
        newest_step: the newest checkpoint that is whole in the mirror; None: there is none.
        copying_step: the one that is being copied; it is not removed from the volume meanwhile.
        copied_files: files of that one which are in the mirror, so that a new start goes on there.
        copied_manifest_sha256: of that one's manifest: another save of the same step is another.
        problem: why the mirror cannot go on; empty: it can.
        problem_since: when that began, in seconds since 1970.
    """

    url: str = ""
    newest_step: int | None = None
    copying_step: int | None = None
    copied_files: list[str] = field(default_factory=list[str])
    copied_manifest_sha256: str = ""
    problem: str = ""
    problem_since: float | None = None

    def set_problem(self, problem: str) -> None:
        """Note a problem, with the time at which the first of a series was met."""
        self.problem = problem
        if not problem:
            self.problem_since = None
        elif self.problem_since is None:
            self.problem_since = round(time.time(), 1)


def read_status(run_dir: Path) -> MirrorStatus:
    """The status of a run; a fresh one where there is none, or none that can be read."""
    try:
        return MirrorStatus(**json.loads((run_dir / STATUS_FILE).read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return MirrorStatus()


def write_status(run_dir: Path, status: MirrorStatus) -> None:
    """Replace the status of a run."""
    write_json(run_dir / STATUS_FILE, asdict(status))


def note_problem(run_dir: Path, problem: str) -> None:
    """Write into the status of a run why its mirror cannot go on."""
    status = read_status(run_dir)
    status.set_problem(problem)
    write_status(run_dir, status)


def step_being_copied(run_dir: Path) -> int | None:
    """The checkpoint that must stay on the volume until it is in the mirror."""
    return read_status(run_dir).copying_step

"""Settings of runs with slow ranks, and what their logs say about these ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.trainer.lab import Lab
from trainer.config import RunConfig

ENDLESS = {"train__max_steps": 1_000_000, "train__decay_steps": 200}
MOST_STEPS = 20


def log_of(lab: Lab, run: RunConfig) -> list[str]:
    """Return the lines of rank 0's log."""
    path = lab.rank_log(run, 0)
    return path.read_text().splitlines() if path.exists() else []


def findings(lab: Lab, run: RunConfig) -> list[str]:
    """Return the lines of the log that name a slow rank, or the end of that."""
    return [line for line in log_of(lab, run) if re.match("(no )?slow rank", line)]


def step_of_log(lab: Lab, run: RunConfig) -> int:
    """Return the last step in rank 0's log. The metrics may lag behind, as a thread writes them."""
    return _last_step(log_of(lab, run))


def steps_until(lab: Lab, run: RunConfig, finding: str, first_step: int) -> int:
    """Return how many steps the log has between `first_step` and the line `finding`."""
    lines = log_of(lab, run)
    return _last_step(lines[: lines.index(finding)]) - first_step


def _last_step(lines: Sequence[str]) -> int:
    return [int(found[1]) for line in lines if (found := re.match(r"step (\d+)/", line))][-1]

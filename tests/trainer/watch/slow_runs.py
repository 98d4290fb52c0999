"""Settings of runs with slow ranks, and what their logs say about these."""

from __future__ import annotations

import re

from tests.trainer.lab import Lab
from trainer.config import RunConfig

ENDLESS = {"train__max_steps": 1_000_000, "train__decay_steps": 200}
MOST_STEPS = 20


def log_of(lab: Lab, run: RunConfig) -> list[str]:
    path = lab.rank_log(run, 0)
    return path.read_text().splitlines() if path.exists() else []


def findings(lab: Lab, run: RunConfig) -> list[str]:
    return [line for line in log_of(lab, run) if re.match("(no )?slow rank", line)]


def steps_until(lab: Lab, run: RunConfig, finding: str, first_step: int) -> int:
    """How many steps the log has between `first_step` and the line `finding`."""
    lines = log_of(lab, run)
    before = lines[: lines.index(finding)]
    made = [int(found[1]) for line in before if (found := re.match(r"step (\d+)/", line))]
    return made[-1] - first_step

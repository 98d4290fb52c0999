"""Real runs in which one rank is made slow, in one place after another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.trainer.accidents import Accident
from tests.trainer.lab import Lab, last_step, wait_for
from trainer.config import RunConfig
from trainer.events.event import Event, Name, event_file, parse_events
from trainer.watch.slow import Cause

ENDLESS = {"train__max_steps": 1_000_000, "train__decay_steps": 200}
SECONDS = 0.3  # against some milliseconds of a step
MOST_STEPS = 20


def log_of(lab: Lab, run: RunConfig) -> list[str]:
    path = lab.rank_log(run, 0)
    return path.read_text().splitlines() if path.exists() else []


def findings(lab: Lab, run: RunConfig) -> list[str]:
    return [line for line in log_of(lab, run) if re.match("(no )?slow rank", line)]


def steps_until(lab: Lab, run: RunConfig, finding: str, first_step: int) -> int:
    """How many steps were made between `first_step` and the line `finding`."""
    lines = log_of(lab, run)
    before = lines[: lines.index(finding)]
    made = [int(found[1]) for line in before if (found := re.match(r"step (\d+)/", line))]
    return made[-1] - first_step


def events(run: RunConfig) -> list[Event]:
    found, damaged = parse_events(event_file(run.run_dir, 0).read_bytes())
    assert not damaged
    return [event for event in found if event.name in (Name.SLOW_RANK, Name.NO_SLOW_RANK)]


@pytest.mark.parametrize(
    ("parallel", "kinds"),
    [
        ("ddp", [("slow data", 0), ("slow forward", 1), ("slow backward", 2)]),
        ("fsdp", [("slow forward", 0), ("slow backward", 1)]),
    ],
)
def test_a_slow_rank_is_named_with_its_cause_and_is_gone_when_it_is_fast(
    lab: Lab, tmp_path: Path, parallel: str, kinds: list[tuple[str, int]]
) -> None:
    """Within 20 steps, once, and so is its end; each in the log and in the events."""
    accidents = [Accident(kind, rank, str(tmp_path / kind), SECONDS) for kind, rank in kinds]
    run = lab.config(**ENDLESS, train__parallel=parallel)
    lab.fork_ranks(run, 3, accidents=accidents)
    wait_for("the first steps", lambda: last_step(run) > 3, 120, lab)
    said = 0
    for accident in accidents:
        accident.begin()
        step = last_step(run)
        wait_for(accident.kind, lambda n=said: len(findings(lab, run)) > n, 120, lab)
        finding = findings(lab, run)[said]
        cause = Cause.DATA if accident.kind == "slow data" else Cause.COMPUTE
        assert re.match(rf"slow rank: rank {accident.rank} on node 0 takes .*: {cause} \(", finding)
        assert steps_until(lab, run, finding, step) <= MOST_STEPS
        wait_for(
            "a step that says so", lambda f=finding: log_of(lab, run)[-1].endswith(f), 120, lab
        )
        accident.end()
        wait_for("the end", lambda n=said: len(findings(lab, run)) > n + 1, 120, lab)
        assert findings(lab, run)[said + 1].startswith("no slow rank any more: ")
        said += 2
    expected = [
        said
        for accident in accidents
        for said in ((Name.SLOW_RANK, accident.rank), (Name.NO_SLOW_RANK, None))
    ]
    wait_for("the last event", lambda: len(events(run)) >= len(expected), 60, lab)
    assert [(event.name, event.values.get("rank")) for event in events(run)] == expected


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_rank_whose_disk_is_slow_is_named_by_its_checkpoints(
    lab: Lab, tmp_path: Path, asynchronous: bool
) -> None:
    """Every rank writes a part; one takes long for its files, and training waits for it."""
    accident = Accident("slow checkpoint", 1, str(tmp_path / "slow"), SECONDS)
    settings = {**ENDLESS, "checkpoint__interval": 5, "checkpoint__asynchronous": asynchronous}
    run = lab.config(**settings)
    lab.fork_ranks(run, 2, accidents=[accident])
    wait_for("the first steps", lambda: last_step(run) > 3, 120, lab)
    accident.begin()
    step = last_step(run)
    wait_for("the finding", lambda: bool(findings(lab, run)), 120, lab)
    finding = findings(lab, run)[0]
    assert re.match(rf"slow rank: rank 1 on node 0 .*: {Cause.CHECKPOINT} \(", finding)
    assert steps_until(lab, run, finding, step) <= MOST_STEPS
    accident.end()
    wait_for("the end", lambda: len(findings(lab, run)) > 1, 120, lab)
    assert findings(lab, run)[1].startswith("no slow rank any more: rank 1 on node 0")

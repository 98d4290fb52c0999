"""Real runs in which one rank is made slow, in one place after another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.in_depth import in_depth
from tests.trainer.accidents import Accident
from tests.trainer.lab import Lab, last_step, records, wait_for
from tests.trainer.watch.slow_runs import (
    ENDLESS,
    MOST_STEPS,
    findings,
    log_of,
    step_of_log,
    steps_until,
)
from trainer.config import RunConfig
from trainer.events.event import Event, Name, event_file, parse_events
from trainer.watch.slow import Cause

USUAL_SECONDS = 0.1  # the least time of a pass, to outweigh a busy machine
SECONDS = 0.3
SLOW_DISK_SECONDS = 1.5  # for each file; a save comes every second


def events(run: RunConfig) -> list[Event]:
    """Return the findings in the events, except for other processes on the machine, as there may
    really be some.
    """
    found, damaged = parse_events(event_file(run.run_dir, 0).read_bytes())
    assert not damaged
    found = [event for event in found if event.name == Name.SLOW_RANK]
    return [event for event in found if event.values["cause"] != Cause.CROWDED]


@pytest.mark.parametrize(
    ("parallel", "kinds"),
    [
        ("ddp", [("slow data", 0), ("slow forward", 1), ("slow backward", 2)]),
        in_depth("fsdp", [("slow forward", 0), ("slow backward", 1)]),
        in_depth("ddp", [("garbage collection", 1)]),
    ],
)
def test_a_slow_rank_is_named_with_its_cause_and_is_gone_when_it_is_fast(
    lab: Lab, tmp_path: Path, parallel: str, kinds: list[tuple[str, int]]
) -> None:
    """A slow rank is named once with its cause within 20 steps, in the log, in the records and in
    the events, and the finding ends when the rank is fast again.
    """
    usual = [Accident("slow forward", r, str(tmp_path / "usual"), USUAL_SECONDS) for r in range(3)]
    usual[0].begin()
    accidents = [Accident(kind, rank, str(tmp_path / kind), SECONDS) for kind, rank in kinds]
    run = lab.config(**ENDLESS, train__parallel=parallel)
    lab.fork_ranks(run, 3, accidents=[*usual, *accidents])
    wait_for("the first steps", lambda: last_step(run) > 3, 120, lab)
    for accident in accidents:
        cause = Cause.DATA if accident.kind == "slow data" else Cause.COMPUTE
        says_so = re.compile(rf"slow rank: rank {accident.rank} on node 0 takes .*: {cause} \(")
        known = len(findings(lab, run))

        def told(says_so: re.Pattern[str] = says_so, known: int = known) -> list[str]:
            return [line for line in findings(lab, run)[known:] if says_so.match(line)]

        accident.begin()
        step = step_of_log(lab, run)
        wait_for(accident.kind, lambda told=told: bool(told()), 120, lab)
        assert steps_until(lab, run, told()[0], step) <= MOST_STEPS
        wait_for(
            "a step that says so",
            lambda says_so=says_so: (
                log_of(lab, run)[-1].startswith("step ")
                and says_so.search(log_of(lab, run)[-1]) is not None
            ),
            120,
            lab,
        )
        wait_for(
            "a record that says so",
            lambda named=(accident.rank, cause): (
                named in [(r["slow_rank"], r["slow_cause"]) for r in records(run)]
            ),
            120,
            lab,
        )
        accident.end()
        wait_for(
            "its end",
            lambda says_so=says_so: says_so.match(findings(lab, run)[-1]) is None,
            120,
            lab,
        )
        assert len(told()) == 1
    found = [(event.values["rank"], event.values["cause"]) for event in events(run)]
    assert found == [
        (accident.rank, Cause.DATA if accident.kind == "slow data" else Cause.COMPUTE)
        for accident in accidents
    ]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_rank_whose_disk_is_slow_is_named_by_its_checkpoints(
    lab: Lab, tmp_path: Path, asynchronous: bool
) -> None:
    """A rank whose disk is slow is named with its checkpoints as the cause, because training waits
    for it. Every rank writes a part.
    """
    usual = [Accident("slow forward", r, str(tmp_path / "usual"), USUAL_SECONDS) for r in range(2)]
    usual[0].begin()
    accident = Accident("slow checkpoint", 1, str(tmp_path / "slow"), SLOW_DISK_SECONDS)
    settings = {**ENDLESS, "checkpoint__interval": 5, "checkpoint__asynchronous": asynchronous}
    run = lab.config(**settings)
    lab.fork_ranks(run, 2, accidents=[*usual, accident])
    wait_for("the first steps", lambda: last_step(run) > 3, 120, lab)
    accident.begin()
    step = step_of_log(lab, run)
    wait_for("the finding", lambda: bool(findings(lab, run)), 120, lab)
    finding = findings(lab, run)[0]
    assert re.match(rf"slow rank: rank 1 on node 0 .*: {Cause.CHECKPOINT} \(", finding)
    assert steps_until(lab, run, finding, step) <= MOST_STEPS
    accident.end()
    wait_for("the end", lambda: len(findings(lab, run)) > 1, 120, lab)
    assert findings(lab, run)[1].startswith("no slow rank any more: rank 1 on node 0")

"""In ten thousand real steps in which nothing is slow, no rank is named.

No test can rule out that other work on the machine keeps a rank from running. A finding that says
so is checked against what the kernel has counted, in another place than the trainer reads. Every
other finding would be false, however busy the machine is.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.trainer.lab import Lab, last_step, rank_environment
from tests.trainer.watch.slow_runs import findings
from trainer.events.event import Name, event_file, parse_events
from trainer.watch.slow import Cause

RANKS, STEPS = 3, 10_000
LIMIT_SECONDS = 3600  # only a run that hangs takes so long
USUAL = {  # as a run has them: twenty saves and forty evaluations in all
    "train__max_steps": STEPS,
    "train__decay_steps": STEPS,
    "eval__interval": STEPS // 40,
    "checkpoint__interval": STEPS // 20,
    "log__interval": 10,
}
LEAST_FACTOR = 1.3
"""A rank is called slow if it needs at least so many times the time of the others."""
LEAST_WAIT_SECONDS = 0.1
"""How long a rank that is called slow because of other processes has waited for a core, at least.
A finding needs two periods, which take at least 2 s together. In these the rank has needed a tenth
more (0.2 s), and has waited for a core for at least half of that."""


def waited_seconds() -> float:
    """Return how long in all some process of the machine was ready to run and had no core (Linux'
    PSI).
    """
    text = Path("/proc/pressure/cpu").read_text()
    found = re.search(r"^some .*total=(\d+)", text, re.MULTILINE)
    assert found
    return int(found[1]) / 1e6


@pytest.mark.timeout(LIMIT_SECONDS)
def test_no_rank_is_named_in_clean_steps(lab: Lab) -> None:
    """No rank of three, each on a node of its own, is named as slow, unless other work has taken
    its core. Evaluations and saves do not change that.
    """
    run, port = lab.config(**USUAL), free_port()
    waited, begin = waited_seconds(), time.monotonic()
    ranks = [
        lab.fork_rank(run, rank, {**rank_environment(rank, RANKS, port), "GROUP_RANK": str(rank)})
        for rank in range(RANKS)
    ]
    codes = lab.ended(ranks, LIMIT_SECONDS)
    took, waited = time.monotonic() - begin, waited_seconds() - waited
    assert codes == [0] * RANKS, lab.logs()
    assert last_step(run) == STEPS
    events, damaged = parse_events(event_file(run.run_dir, 0).read_bytes())
    assert not damaged
    found = [event.values for event in events if event.name == Name.SLOW_RANK]
    said = findings(lab, run)
    print(f"{STEPS} steps in {took:.0f} s; some process waited for {waited:.0f} s; {said}")
    assert {each["cause"] for each in found} <= {Cause.CROWDED}, said
    assert min((each["factor"] for each in found), default=LEAST_FACTOR) >= LEAST_FACTOR, said
    assert len(found) * LEAST_WAIT_SECONDS <= waited, said

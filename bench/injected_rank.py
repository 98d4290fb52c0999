"""One rank of our trainer in a run where one rank is slow: `bench.traceml_beside` starts it.

    python -m bench.injected_rank CONFIG KIND RANK SECONDS    with RANK, WORLD_SIZE, MASTER_* set

Each rank sleeps for `USUAL_SECONDS` in each forward pass, so that a step takes equally long on a
busy machine. The slow rank, RANK, does in addition what KIND names (tests/trainer/accidents), for
SECONDS if that is a sleep. With a CPU quota no rank sleeps, because a quota does not slow a sleep.
"""

from __future__ import annotations

import sys

from tests.trainer.accidents import KINDS, Accident, prepare
from trainer.__main__ import main

USUAL_SECONDS = 0.1
BEGUN_STEPS = 3  # after so many steps, the start is over
ALWAYS = "/"  # a switch is a path; this one always exists, so the accident is always on
CLEAN, QUOTA = "none", "CPU quota"


def usual_seconds(kind: str) -> float:
    """How long each rank sleeps in each forward pass."""
    return 0.0 if kind == QUOTA else USUAL_SECONDS


if __name__ == "__main__":
    config, kind, slow, seconds = sys.argv[1:]
    for rank in range(3):
        prepare(Accident("slow forward", rank, ALWAYS, usual_seconds(kind)))
    if kind in KINDS:  # other kinds are done from outside of the process
        prepare(Accident(kind, int(slow), ALWAYS, float(seconds)))
    sys.exit(main(["train", "--config", config]))

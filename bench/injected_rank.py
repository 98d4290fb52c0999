"""One rank of our trainer, of which one is made slow: `bench.traceml_beside` starts it.

    python -m bench.injected_rank CONFIG KIND RANK SECONDS    with RANK, WORLD_SIZE, MASTER_* set

Each rank sleeps for `USUAL_SECONDS` in each forward pass, so that a step takes as long on a busy
machine; the slow one sleeps for so many seconds more in what KIND names (tests/trainer/accidents).
"""

from __future__ import annotations

import sys

from tests.trainer.accidents import Accident, prepare
from trainer.__main__ import main

USUAL_SECONDS = 0.1
ALWAYS = "/"  # a switch that is always there
CLEAN = "none"

if __name__ == "__main__":
    config, kind, slow, seconds = sys.argv[1:]
    ranks = [Accident("slow forward", rank, ALWAYS, USUAL_SECONDS) for rank in range(3)]
    for accident in [
        *ranks,
        *([Accident(kind, int(slow), ALWAYS, float(seconds))] * (kind != CLEAN)),
    ]:
        prepare(accident)
    sys.exit(main(["train", "--config", config]))

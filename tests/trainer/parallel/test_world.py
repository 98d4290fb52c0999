"""Ranks of one group tell each other texts, such as the reasons of errors."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.trainer.lab import free_port, rank_environment

LIMIT_SECONDS = 60.0
LONG = "x" * 10_000 + " é '\\' the end"
TELL = f"""
import os
from trainer.config import TrainConfig
from trainer.launch.exit_codes import RetryableError
from trainer.parallel.device import choose_compute
from trainer.parallel.world import World
train = TrainConfig(device="cpu", compile="off")
world = World.from_environment()
world.connect(choose_compute(train, 0), train)
long = {LONG!r}
def fail():
    raise RetryableError(long)
texts = world.together_while_asking(lambda: f"{{world.rank}}" + world.rank * long)
try:
    world.on_main_while_others_ask(fail)
except RetryableError as error:
    print(texts == ["0", "1" + long], str(error) == long, flush=True)
os._exit(0)
"""


def test_ranks_tell_long_texts_whole() -> None:
    """All ranks get the whole text that another rank tells, however long it is. The important part
    of an error is often its end.
    """
    port = free_port()
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", TELL],
            env={**os.environ, **rank_environment(rank, 2, port)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=LIMIT_SECONDS)[0] for rank in ranks]
    assert said == ["True True\n"] * 2

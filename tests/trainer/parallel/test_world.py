"""Ranks of one group tell each other texts, such as the reasons of errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.trainer.lab import free_port, rank_environment

LIMIT_SECONDS = 300.0  # a rank imports torch, which takes long on a busy machine
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
BOUND = """
import os, threading
from trainer.config import TrainConfig
from trainer.parallel.device import choose_compute
from trainer.parallel.world import World
from trainer.watch.beat import BEAT, read_beat
from pathlib import Path
train = TrainConfig(device="cpu", compile="off")
world = World.from_environment()
BEAT.share(Path(os.environ["BEAT"]))
world.connect(choose_compute(train, 0), train)
if world.rank == 1:
    input()
bounding = threading.Thread(target=world.bound_waits, args=(7,), daemon=True)
bounding.start()
seen = read_beat(Path(os.environ["BEAT"]))
while world.rank == 0 and bounding.is_alive() and not seen.waits:
    seen = read_beat(Path(os.environ["BEAT"]))
print("before", seen.longest_wait_seconds if world.rank == 0 else "", flush=True)
bounding.join()
print("after", read_beat(Path(os.environ["BEAT"])).longest_wait_seconds, flush=True)
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


def test_no_wait_is_bound_before_all_ranks_step(tmp_path: Path) -> None:
    """The short limit of waits begins when the last rank has made its first step. On GPUs a rank is
    done with its first step before it has waited for any other rank, and another rank may compile
    for minutes then.
    """
    port = free_port()
    first, last = (
        subprocess.Popen(
            [sys.executable, "-c", BOUND],
            env={
                **os.environ,
                **rank_environment(rank, 2, port),
                "BEAT": str(tmp_path / f"beat-{rank}"),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    )
    assert first.stdout is not None
    assert first.stdout.readline() == "before 0\n"
    assert last.communicate("go on\n", timeout=LIMIT_SECONDS)[0] == "before \nafter 7\n"
    assert first.communicate(timeout=LIMIT_SECONDS)[0] == "after 7\n"

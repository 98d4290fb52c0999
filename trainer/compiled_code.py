"""Keeps what torch.compile has made in the folder of the run, for the pods to come.

torch keeps it in the pod, and it goes with the pod. The next one would compile the same again: on
an H200 the first step of gpt2-124m takes 17 s without it, and 3 s with it (docs/benchmarks.md). The
files are torch's own (https://docs.pytorch.org/tutorials/recipes/torch_compile_caching_tutorial.html).
torch uses what was made from the same code, by the same versions, for the same kind of GPU.

What the files hold is executed. So whoever may write into the run's folder can have its pods
execute what they like, and `train.keep_compiled` is off by default.
"""

# pyright: reportUnknownMemberType=false
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from trainer.checkpoint.durable import write_bytes
from trainer.config import RunConfig
from trainer.parallel.device import Compute
from trainer.parallel.world import World
from trainer.watch.beat import BEAT, Phase

FOLDER = ".compiled"
"""In the folder of the run; `./disttrain fetch` leaves such names out."""
MOST_FILES = 16
"""Of a local rank. Each takes about 10 MB for gpt2-124m, and a run needs two or three of them for
each kind of GPU and version of torch."""


class CompiledCode:
    """The compiled code of one rank; it does nothing where nothing is compiled or to be kept.

    Code is made for the number that a GPU has in its pod, so ranks of the same local rank share
    their files, which the one of node 0 writes. What is compiled later, as for the evaluation, gets
    another file, and a file that was read is not written over: of what torch saves a second time,
    torch 2.8 and later read only what is new (seen with 2.11; `CacheArtifactManager.deserialize`
    makes a dict of a list in which each save has entries of the same names).
    """

    def __init__(
        self, config: RunConfig, world: World, compute: Compute, say: Callable[[str], None]
    ):
        self._is_on = config.train.keep_compiled and compute.compile
        self._folder, self._local_rank = config.run_dir / FOLDER, world.local_rank
        self._writes, self._say = world.node == 0, say
        self._known, self._taken = set[str](), set[int]()

    def _file(self, number: int) -> Path:
        return self._folder / f"local-rank-{self._local_rank}-{number}.bin"

    def take(self) -> None:
        """Give torch what was kept; to be called before the model is compiled."""
        if not self._is_on:
            return
        for number in range(1, MOST_FILES + 1):
            file = self._file(number)
            try:
                content = file.read_bytes()
            except FileNotFoundError:
                return
            except OSError as error:
                self._say(
                    f"the compiled code in {file} cannot be read, so it is made anew: {error}"
                )
                return
            found = torch.compiler.load_cache_artifacts(content)
            if found is None:
                self._say(f"the compiled code in {file} is damaged, so it is made anew")
                continue
            self._known |= _names(found)
            self._taken.add(number)
            self._say(f"compiled code was taken from {FOLDER}/{file.name}")

    def keep(self) -> None:
        """Write what torch has used or made so far, if some of it is in no file yet.

        A volume that refuses it costs this file and not the run.
        """
        if not self._is_on or not self._writes:
            return
        made = torch.compiler.save_cache_artifacts()
        if made is None or _names(made[1]) <= self._known:
            return
        free = [n for n in range(1, MOST_FILES + 1) if n not in self._taken]
        if not free:
            self._known |= _names(made[1])  # so that it is said once
            self._say(
                f"compiled code is not kept: {self._folder} has {MOST_FILES} files of local rank "
                f"{self._local_rank}. Delete them, and the next start keeps its code."
            )
            return
        file = self._file(free[0])
        BEAT.phase(Phase.SAVE)  # the volume may take its time
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_bytes(file, made[0])
        except OSError as error:
            self._say(f"compiled code cannot be kept in {file}: {error}")
            return
        self._known |= _names(made[1])
        self._taken.add(free[0])
        self._say(f"compiled code is kept in {FOLDER}/{file.name}, {len(made[0]):,} bytes")


def _names(found: Any) -> set[str]:
    """What torch's `CacheInfo` lists; profiles of a process are no code, and differ each time."""
    kinds = ("inductor_artifacts", "autotune_artifacts", "aot_autograd_artifacts")
    return {f"{kind} {name}" for kind in kinds for name in getattr(found, kind, ())}

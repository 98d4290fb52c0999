"""Keeps what torch.compile has made in the folder of the run, for the pods to come.

torch keeps it in the pod, and it goes with the pod. The next one would compile the same again: on
an H200 the first step of gpt2-124m takes 20 s without it, and 3 s with it (docs/benchmarks.md). The
file is torch's own (https://docs.pytorch.org/tutorials/recipes/torch_compile_caching_tutorial.html).
torch uses what was made from the same code, by the same versions, for the same kind of GPU.

What the file holds is executed. So whoever may write into the run's folder can have its pods
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


class CompiledCode:
    """The compiled code of one rank; it does nothing where nothing is compiled or to be kept.

    Code is made for the number that a GPU has in its pod, so ranks of the same local rank share a
    file, which the one of node 0 writes.
    """

    def __init__(
        self, config: RunConfig, world: World, compute: Compute, say: Callable[[str], None]
    ):
        self._file: Path | None = None
        if config.train.keep_compiled and compute.compile:
            self._file = config.run_dir / FOLDER / f"local-rank-{world.local_rank}.bin"
        self._writes, self._say = world.node == 0, say
        self._known = set[str]()

    def take(self) -> None:
        """Give torch what was kept; to be called before the model is compiled."""
        if self._file is None:
            return
        try:
            content = self._file.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            self._say(
                f"the compiled code in {self._file} cannot be read, so it is made anew: {error}"
            )
            return
        found = torch.compiler.load_cache_artifacts(content)
        if found is None:
            self._say(f"the compiled code in {self._file} is damaged, so it is made anew")
            return
        self._known = _names(found)
        self._say(f"compiled code was taken from {FOLDER}/{self._file.name}")

    def keep(self) -> None:
        """Write what torch has used or made so far, if that is not in the file yet.

        A volume that refuses it costs this file and not the run.
        """
        if self._file is None or not self._writes:
            return
        made = torch.compiler.save_cache_artifacts()
        if made is None or _names(made[1]) <= self._known:
            return
        BEAT.phase(Phase.SAVE)  # the volume may take its time
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(self._file, made[0])
        except OSError as error:
            self._say(f"compiled code cannot be kept in {self._file}: {error}")
            return
        self._known |= _names(made[1])
        self._say(f"compiled code is kept in {FOLDER}/{self._file.name}, {len(made[0]):,} bytes")


def _names(found: Any) -> set[str]:
    """What torch's `CacheInfo` lists; profiles of a process are no code, and differ each time."""
    kinds = ("inductor_artifacts", "autotune_artifacts", "aot_autograd_artifacts")
    return {f"{kind} {name}" for kind in kinds for name in getattr(found, kind, ())}

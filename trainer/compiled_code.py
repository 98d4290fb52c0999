"""Keeps the code that torch.compile has made in the run's folder, where later pods read it.

torch keeps compiled code inside the pod, so it is lost with the pod, and the next pod compiles the
same code again. On an H200 the first step of gpt2-124m takes 17 s without the kept code, and 3 s
with it (docs/benchmarks.md). The files have torch's own format
(https://docs.pytorch.org/tutorials/recipes/torch_compile_caching_tutorial.html). torch uses an
entry only for the same source code, the same versions and the same kind of GPU.

The content of the files is executed. So everyone who may write into the run's folder can make its
pods execute any code. Therefore `train.keep_compiled` is off by default.
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
"""The folder's name in the folder of the run. `./disttrain fetch` does not copy such names."""
MOST_FILES = 16
"""The most files that one local rank may have. A file takes about 10 MB for gpt2-124m. A run needs
two or three files for each kind of GPU and each version of torch."""


class CompiledCode:
    """The compiled code of one rank.

    Its methods do nothing if nothing is compiled, or if `train.keep_compiled` is off. Compiled code
    is bound to the number that a GPU has in its pod. So all ranks with the same local rank share
    their files, and the one on node 0 writes them.

    Code that is compiled later, for example for the evaluation, is written to a further file. A
    file that was read is never overwritten, because torch 2.8 and later would read from a second
    save only the entries that were new in it. (Seen with torch 2.11: each save appends entries with
    the same names to a list, and `CacheArtifactManager.deserialize` makes a dict of that list.)
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
        """Give the kept code to torch. Call this before the model is compiled."""
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

    def keep(self, among: World | None = None) -> None:
        """Write the code that torch has used or made so far, if a part of it is in no file yet.

        If the volume refuses the file, the code is not kept, and the run goes on.

        `among`: The ranks, if they wait in a collective for at most `train.timeout_seconds`. The
        volume may take longer than that. Then all ranks must call this, and they exchange meanwhile
        whether all of them have ended.
        """
        if not self._is_on:
            return
        made = torch.compiler.save_cache_artifacts() if self._writes else None
        new = made if made is not None and not _names(made[1]) <= self._known else None

        def write() -> str:
            return "" if new is None else self._write(*new)

        if new is not None:
            BEAT.phase(Phase.SAVE)  # The volume may be slow, so a long wait here is no hang.
        said = write() if among is None else among.together_while_asking(write)[among.rank]
        if said:
            self._say(said)

    def _write(self, content: bytes, found: Any) -> str:
        """Write a further file, and return a line for the log."""
        free = [n for n in range(1, MOST_FILES + 1) if n not in self._taken]
        if not free:
            self._known |= _names(found)  # so that the message appears once
            return (
                f"compiled code is not kept: {self._folder} has {MOST_FILES} files of local rank "
                f"{self._local_rank}. Delete them, and the next start keeps its code."
            )
        file = self._file(free[0])
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_bytes(file, content)
        except OSError as error:
            return f"compiled code cannot be kept in {file}: {error}"
        self._known |= _names(found)
        self._taken.add(free[0])
        return f"compiled code is kept in {FOLDER}/{file.name}, {len(content):,} bytes"


def _names(found: Any) -> set[str]:
    """The names of the code that torch's `CacheInfo` lists.

    The profiles that it lists too are left out: they are no code, and differ in each process.
    """
    kinds = ("inductor_artifacts", "autotune_artifacts", "aot_autograd_artifacts")
    return {f"{kind} {name}" for kind in kinds for name in getattr(found, kind, ())}

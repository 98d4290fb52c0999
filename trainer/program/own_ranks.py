"""Finds ranks that a program has started itself and that are not those of the run.

A launcher that is not told of the other pods, such as `torchrun --nnodes=1` in a script, lets the
ranks of each pod train alone, and `torchrun --standalone` waits for the others in its own pod. A
launcher that is started once for each rank starts too many. Such ranks train without an error, but
all of them write the same checkpoints.

Linux shows the variables with which a process was started. A program that sets them later, or that
starts its processes by a fork, is not found.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile

from trainer.program.processes import command_line, processes, variables

NOT_OF_THE_RUN = "warning: the ranks are not those of the run: "
"""How the line about such ranks begins, by which cli/status/progress.py recognizes it."""
LOOK_SECONDS = 10.0
REPEAT_SECONDS = 300.0  # the warning is repeated this often, as `status` reads the last lines
_LOOKS_HERE = re.compile(
    r" (--standalone|--(?:rdzv[-_]endpoint|master[-_]addr)[ =](?:localhost|127\.)\S*)(?: |$)"
)


class OwnRanksWatch:
    """Looks for such ranks from time to time while one start of the program runs, and says it.

    Only one node looks, because all nodes run the same command.

    Args:
        first: As for `ranks_not_of_the_run`.
        place: The place of this node among those of the round, counted from 0.
        world_size: The number of ranks of the run.
        say: Prints a line.
    """

    def __init__(
        self,
        first: Mapping[int, int | None],
        place: int,
        world_size: int,
        say: Callable[[str], None],
    ) -> None:
        self._first, self._world_size, self._say = first, world_size, say
        looks = place == 1 if None in first.values() else place == 0 and world_size > 1
        self._due = time.monotonic() + LOOK_SECONDS if looks else math.inf

    def poll(self) -> None:
        """Look if it is time to. Call this several times a second while the program runs."""
        if time.monotonic() < self._due:
            return
        why = ranks_not_of_the_run(self._first, self._world_size)
        self._due = time.monotonic() + (REPEAT_SECONDS if why else LOOK_SECONDS)
        if why:
            self._say(f"{NOT_OF_THE_RUN}{why}")


def ranks_not_of_the_run(first: Mapping[int, int | None], world_size: int) -> str:
    """Return what is wrong with ranks that the program has started itself; empty if none is found.

    Args:
        first: The ids of the program's first processes on this node, each with its rank. It is None
            if the process starts the ranks of its node itself; then this must not be the first
            node, where the rank 0 of any number of ranks is expected.
        world_size: The number of ranks of the run.
    """
    children = _children()
    for pid, rank in first.items():
        for process in _with_descendants(pid, children):
            why = _of_the_node(process, world_size) if rank is None else ""
            if rank is not None and (started := _started_by_rank(process, rank, world_size)):
                why = (
                    f"rank {rank} of {world_size} has started {started}. If the program starts its "
                    "ranks itself, set program.per to node, so that it is started once in each pod"
                )
            if why:
                return why
    return ""


def _of_the_node(process: int, world_size: int) -> str:
    """Return how a process that a launcher of the node is, or has started, misses the others."""
    rank, size = _rank_and_size(process)
    how = '(docs/programs.md, "Launchers in several pods")'
    if rank == "0" and size.isdecimal() and int(size) < world_size:
        return (
            f"a rank 0 of {size} runs in this pod too, so the ranks of each pod train alone. The "
            f"program's launcher has to be told of the other pods {how}"
        )
    if option := _LOOKS_HERE.search(_torchrun(process)):
        return (
            f"torchrun {option[1]} looks for the other pods in its own pod, so each of them waits. "
            f"Remove that option {how}"
        )
    return ""


def _started_by_rank(process: int, rank: int, world_size: int) -> str:
    """Return what a process below that of a rank is, if it is another rank or a launcher."""
    own_rank, own_size = _rank_and_size(process)
    is_a_rank = own_rank.isdecimal() and own_size.isdecimal()
    if is_a_rank and (own_rank, own_size) != (str(rank), str(world_size)):
        return f"a rank {own_rank} of {own_size}"
    return "a torchrun" if _torchrun(process) else ""


def _torchrun(pid: int) -> str:
    """Return the options of a torchrun, each word after a space; empty if it is another process.

    Words behind the name of a script are the script's own.
    """
    words = command_line(pid)
    for place, word in enumerate(words[:5]):  # it stands behind Python and its options
        if word == "torch.distributed.run" or word.rpartition("/")[2] == "torchrun":
            own = takewhile(lambda each: not each.endswith(".py"), words[place + 1 :])
            return "".join(f" {each}" for each in own) or " "
    return ""


def _children() -> dict[int, list[int]]:
    """Return the children of each process of this container."""
    found: dict[int, list[int]] = {}
    for process in processes():
        found.setdefault(process.parent, []).append(process.pid)
    return found


def _with_descendants(pid: int, children: Mapping[int, list[int]]) -> Iterator[int]:
    found = [pid]
    for process in found:
        yield process
        found.extend(children.get(process, []))


def _rank_and_size(pid: int) -> tuple[str, str]:
    """Return RANK and WORLD_SIZE of a process; empty texts if they are not set or not readable."""
    given = variables(pid)
    return given.get("RANK", ""), given.get("WORLD_SIZE", "")

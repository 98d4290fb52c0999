"""Finds out that the pods of a program train without each other.

A program that starts its ranks itself, as by `torch.multiprocessing.spawn`, or that sets RANK and
WORLD_SIZE itself, may know only its own pod. Its variables do not show that: they are set after its
start. But ranks that train together have connections: the other pods connect to the store of rank
0, at MASTER_ADDR and MASTER_PORT in the first pod. So if the program makes steps in the first pod
and has no connection with another pod there, it trains alone. The kernel's table of connections
(proc(5), Linux only) shows it. The entrypoints of the other pods are connected to that of the first
one, so the addresses of the pods are those in its own connections.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Iterable

from trainer.program.own_ranks import NOT_OF_THE_RUN
from trainer.watch.connections import (
    ESTABLISHED,
    address_of,
    is_loopback,
    rows_of,
    sockets_of,
    tables_of,
)

LOOK_SECONDS = 10.0
LOOKS = 3  # so often in a row it has to be seen, each time after a further step
REPEAT_SECONDS = 300.0  # the warning is repeated this often, as `status` reads the last lines
_LISTENS = "0A"
ALONE = (
    "the program makes steps in the first pod and has no connection with another pod, so the ranks "
    "of each pod train alone. A program that starts its ranks itself has to let them meet at "
    'MASTER_ADDR and MASTER_PORT (docs/programs.md, "Launchers in several pods")'
)


class PeersWatch:
    """Looks from time to time while one start of the program runs, and says it.

    Args:
        place: The place of this node among those of the round, counted from 0. The first one looks.
        nodes: The number of nodes in the round.
        say: Prints a line.
    """

    def __init__(self, place: int, nodes: int, say: Callable[[str], None]) -> None:
        self._say = say
        self._due = time.monotonic() + LOOK_SECONDS if place == 0 and nodes > 1 else math.inf
        self._step: int | None = None
        self._alone = 0

    def poll(self, step: int | None) -> None:
        """Look if it is time to. Call this several times a second while the program runs.

        `step`: The newest step of this start; None: there is none yet.
        """
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + LOOK_SECONDS
        before, self._step = self._step, step
        if before is None or step == before:
            return
        joined = _is_joined_now()
        if joined:
            self._due = math.inf
        self._alone = self._alone + 1 if joined is False else 0
        if self._alone >= LOOKS:
            self._due = now + REPEAT_SECONDS
            self._say(f"{NOT_OF_THE_RUN}{ALONE}")


def _is_joined_now() -> bool | None:
    return is_joined(tables_of(os.getpid()), sockets_of(os.getpid()))


def is_joined(tables: Iterable[str], own: Collection[str]) -> bool | None:
    """Whether a program has a connection with another pod. This function is pure.

    It is None if the tables do not even show the connections of the entrypoint.

    Args:
        tables: The texts of /proc/PID/net/tcp and tcp6 of the first pod.
        own: The inodes of the sockets of its entrypoint.
    """
    rows = rows_of(tables)
    listening = {_port(columns[1]) for columns in rows if columns[3] == _LISTENS}
    pods, others = set[str](), set[str]()
    for columns in rows:
        here, there = address_of(columns[1]), address_of(columns[2])
        if columns[3] != ESTABLISHED or there == here or is_loopback(there):
            continue
        if columns[9] not in own:
            others.add(there)
        elif _port(columns[1]) in listening:
            pods.add(there)
    return bool(pods & others) if pods else None


def _port(column: str) -> str:
    return column.partition(":")[2]

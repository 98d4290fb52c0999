"""What is slow in each row of `bench.traceml_beside`, and where its ranks run.

Some slow things are done inside the rank (bench/injected_rank.py, bench/traceml_rank.py). Two are
done from outside to a rank that already trains, and need root: a CPU quota by the kernel's control
groups, and a slow link between namespaces by the kernel's token bucket filter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.injected_rank import BEGUN_STEPS, CLEAN, QUOTA, USUAL_SECONDS
from bench.runs import Place
from tests.trainer.accidents import Garbage
from tests.trainer.monitoring.quota import quota
from tests.trainer.networks import Networks, networks
from trainer.watch.slow import Cause

RANKS, SLOW, SECONDS = 3, 1, 0.3
LINK = "shaped link"
QUOTA_MICROSECONDS = 10_000  # in each 100 ms
RATE = "100mbit"
USUAL_STEPS = 80  # before the link is slowed; the network is compared with these steps
_MORE = f"{SECONDS} s more in each step of rank {SLOW} of {RANKS}: "
_PASSES = f"with {USUAL_SECONDS} s in each forward pass"


@dataclass(frozen=True)
class Kind:
    """One kind of slow rank, which gives one row for each of the two programs.

    Args:
        what: what is done, for people.
        cause: the cause that our trainer has to name; None: no rank is slow.
        issue: the issue that traceml has to name; None: no rank is slow.
        rank: the rank that our trainer has to name; traceml always has to name SLOW.
        steps_before: how many steps our trainer makes before the thing is done; 0: it is done from
            the first step on. Under traceml, which treats all steps alike, it is done as soon as
            training has begun.
        bar: what both programs have to name.
    """

    what: str
    cause: Cause | None
    issue: str | None
    rank: int | None = SLOW
    steps_before: int = 0
    bar: str = "the rank and the cause"


KINDS = {
    "slow data": Kind(f"{_MORE}slow data, {_PASSES}", Cause.DATA, "INPUT_STRAGGLER"),
    "slow forward": Kind(f"{_MORE}slow forward, {_PASSES}", Cause.COMPUTE, "COMPUTE_STRAGGLER"),
    "slow backward": Kind(f"{_MORE}slow backward, {_PASSES}", Cause.COMPUTE, "COMPUTE_STRAGGLER"),
    "garbage collection": Kind(
        f"in each forward pass of rank {SLOW} of {RANKS} Python looks {Garbage.LOOKS} times for "
        f"garbage among {Garbage.OBJECTS:,} objects, {_PASSES}",
        Cause.COMPUTE,
        "COMPUTE_STRAGGLER",
    ),
    QUOTA: Kind(
        f"rank {SLOW} of {RANKS} has a CPU quota of {QUOTA_MICROSECONDS // 1000} ms in 100 ms, and "
        "the passes of all are real work alone",
        Cause.THROTTLED,
        "COMPUTE_STRAGGLER",  # traceml has no issue for a quota
        steps_before=BEGUN_STEPS,
    ),
    LINK: Kind(
        f"each of {RANKS} ranks in a network of its own, and the link of rank {SLOW} shaped to "
        f"{RATE}/s while it trains, {_PASSES}",
        Cause.NETWORK,
        "STRAGGLER",
        rank=None,  # our trainer names no rank if the network is the cause
        steps_before=USUAL_STEPS,
        bar="the cause, and no wrong rank",
    ),
    CLEAN: Kind(f"no rank is slow, {RANKS} ranks {_PASSES}", None, None, rank=None),
}


def nothing() -> None:
    """Do nothing; for kinds in which nothing is done from outside."""


@dataclass(frozen=True)
class Scene:
    """Where the ranks run.

    Args:
        places: the places of our ranks.
        group: the slow rank's control group; None: there is none. traceml starts its ranks itself,
            so the slow one joins the group.
        networks: a network for each rank; None: all ranks are in this machine's network.
        inject: a function that makes one rank slow.
    """

    places: tuple[Place, ...] = (Place(),) * RANKS
    group: Path | None = None
    networks: Networks | None = None
    inject: Callable[[], None] = nothing

    @property
    def master(self) -> str:
        """The address of rank 0."""
        return self.networks.address(0, "eth0") if self.networks else "127.0.0.1"

    @property
    def interface(self) -> str:
        """The network interface by which the ranks reach each other."""
        return "eth0" if self.networks else "lo"


@contextmanager
def scene_of(kind: str) -> Iterator[Scene]:
    """Make the scene of a kind. It is removed after the block, when the ranks have ended."""
    if kind == QUOTA:
        with quota(f"disttrain-bench-{os.getpid()}") as group:
            places = [Place()] * RANKS
            places[SLOW] = Place(group.wrapper)
            limit = lambda: group.limit(QUOTA_MICROSECONDS)  # noqa: E731
            try:
                yield Scene(tuple(places), group=group.folder, inject=limit)
            finally:
                group.limit(None)
    elif kind == LINK:
        with networks(RANKS) as made:
            address = made.address(0, "eth0")
            common = {"MASTER_ADDR": address, "GLOO_SOCKET_IFNAME": "eth0"}
            # Each rank is a node of its own, as the entrypoints number them.
            places = [
                Place(made.inside(rank), {**common, "GROUP_RANK": str(rank)})
                for rank in range(RANKS)
            ]
            shape = lambda: made.set_rate(SLOW, "eth0", RATE)  # noqa: E731
            yield Scene(tuple(places), networks=made, inject=shape)
    else:
        yield Scene()

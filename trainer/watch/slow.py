"""Finds out which rank slows the others down, and by what.

A step takes equally long on all ranks, because they wait for each other. So the time that a rank
needs by itself, before it enters the collective, is compared with that of the other ranks.

This module does no input or output.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum

SLOW_FACTOR = 1.3
"""A rank is slow if it needs at least so many times as long as the others."""
LEAST_SHARE = 0.1
"""A rank is slow only if its extra time is also at least this share of the step."""


class Cause(StrEnum):
    """Why a rank is slow; the values are the words of the log."""

    DATA = "data loading"
    COMPUTE = "compute"
    CHECKPOINT = "writing its part of a checkpoint"
    THROTTLED = "its CPU quota"
    CROWDED = "another process on the machine"
    NETWORK = "the network"


@dataclass(frozen=True)
class Window:
    """What one rank has measured over some steps (a window). Seconds are per step, except `save`.

    Args:
        node: The rank of the node, as the entrypoints count.
        data: Seconds of waiting for the rank's batch.
        compute: Seconds of the forward and backward pass until the last gradient, and the update.
        wait: Seconds in collectives, until the other ranks have entered them, and for the transfer.
        save: Seconds, in the whole window, that training waited for this rank's part of a
            checkpoint.
        throttled: Mean seconds in which the pod stood still because of its CPU quota.
        delayed: Mean seconds in which the thread that trains could run, but no core was free.
        pressed: Mean seconds in which any thread of the pod could run, but no core was free; for
            example a thread that transfers data.
    """

    node: int
    data: float
    compute: float
    wait: float
    save: float
    throttled: float
    delayed: float
    pressed: float

    @property
    def own(self) -> float:
        """The seconds that the rank needs by itself for a step."""
        return self.data + self.compute

    def to_numbers(self) -> list[float]:
        """Return the window as numbers, which the ranks exchange."""
        return [float(value) for value in vars(self).values()]

    @staticmethod
    def from_numbers(numbers: Sequence[float]) -> Window:
        """Return the window that `to_numbers` has turned into `numbers`."""
        return Window(int(numbers[0]), *numbers[1:])


NUMBERS = len(fields(Window))


@dataclass(frozen=True)
class Finding:
    """What slows all ranks down.

    Args:
        cause: What the time is lost to.
        rank: The slow rank; None if the collectives take longer and no single rank is late.
        node: The node of the slow rank; None if `rank` is None.
        factor: How many times as long the step takes as on the other ranks, or as before.
        seconds: The seconds for the part of a step that is slow, or for a save.
        others_seconds: The median of these seconds on the other ranks, or what was usual before.
    """

    cause: Cause
    rank: int | None
    node: int | None
    factor: float
    seconds: float
    others_seconds: float

    @property
    def who(self) -> str:
        """The slow rank, as in `rank 2 on node 1`."""
        return "no single rank" if self.rank is None else f"rank {self.rank} on node {self.node}"

    def is_same(self, other: Finding) -> bool:
        """Whether both findings have the same cause and the same rank."""
        return (self.cause, self.rank) == (other.cause, other.rank)

    def __str__(self) -> str:
        """`rank 2 on node 1 takes 1.8x as long as the others: data loading (...)`."""
        took = f"({self.seconds:.3f} s against {self.others_seconds:.3f} s)"
        if self.rank is None:
            return (
                f"{self.who}: all come to the collectives together, and steps take "
                f"{self.factor:.1f}x as long as before: {self.cause} {took}"
            )
        return f"{self.who} takes {self.factor:.1f}x as long as the others: {self.cause} {took}"


def slow_rank(windows: Sequence[Window], least_factor: float = SLOW_FACTOR) -> Finding | None:
    """Find the rank that needs longest by itself for a step, if it is slow; else return None.

    Args:
        windows: The windows of the same steps, by rank.
        least_factor: How many times as long as the others a slow rank needs at least.
    """
    if len(windows) < 2:
        return None
    rank = max(range(len(windows)), key=lambda rank: windows[rank].own)
    mine, others = windows[rank], [*windows[:rank], *windows[rank + 1 :]]
    usual = statistics.median(window.own for window in others)
    if usual <= 0:  # with fsdp on GPUs, collectives run beside the passes and may take longer
        return None
    excess = mine.own - usual
    step = mine.own + mine.wait
    if mine.own < least_factor * usual or excess < LEAST_SHARE * step:
        return None
    for cause, part in _PARTS:
        seconds, theirs = _of(mine, part), statistics.median(_of(each, part) for each in others)
        if seconds - theirs >= excess / 2:
            return Finding(cause, rank, mine.node, mine.own / usual, seconds, theirs)
    return None  # half of data and half of compute: the next windows will tell


# The cause is the first one that explains half of the rank's extra time. The order matters: a rank
# that gets no CPU waits for its batch and for its kernels alike, and a thread that its quota keeps
# from running counts as delayed too.
_PARTS = (
    (Cause.THROTTLED, "throttled"),
    (Cause.CROWDED, "delayed"),
    (Cause.DATA, "data"),
    (Cause.COMPUTE, "compute"),
)


def _of(window: Window, part: str) -> float:
    return float(getattr(window, part))


def slow_save(
    spans: Sequence[tuple[int, Sequence[Window]]], least_factor: float = SLOW_FACTOR
) -> Finding | None:
    """Find the rank for whose part of the checkpoints training has waited; None if there is none.

    Args:
        spans: The windows since the save before, each with its number of steps.
        least_factor: How many times as long the steps have to take with this rank's save as with
            the saves of the others.
    """
    if not spans or len(spans[0][1]) < 2:
        return None
    ranks = range(len(spans[0][1]))
    saves = [sum(windows[rank].save for _, windows in spans) for rank in ranks]
    rank = max(ranks, key=lambda rank: saves[rank])
    steps = sum(count * (windows[rank].own + windows[rank].wait) for count, windows in spans)
    usual = statistics.median([*saves[:rank], *saves[rank + 1 :]])
    if steps <= 0 or steps + saves[rank] < least_factor * (steps + usual):
        return None
    factor = (steps + saves[rank]) / (steps + usual)
    return Finding(Cause.CHECKPOINT, rank, spans[-1][1][rank].node, factor, saves[rank], usual)


@dataclass(frozen=True)
class Meeting:
    """How long the collectives of a step take if no rank is late. Seconds per step.

    Args:
        wait: The time in collectives of the rank that waits least. That rank waits for no other
            rank, only for the transfer.
        throttled: The `throttled` of the pod that stood still longest.
        pressed: The `pressed` of the pod whose threads had no core for longest.
    """

    wait: float
    throttled: float
    pressed: float

    @staticmethod
    def of(windows: Sequence[Window]) -> Meeting:
        """Return the values for the windows of all ranks."""
        return Meeting(
            min(window.wait for window in windows),
            max(window.throttled for window in windows),
            max(window.pressed for window in windows),
        )

    @staticmethod
    def usual(meetings: Sequence[Meeting]) -> Meeting:
        """Return the median of each value."""
        columns = zip(*(vars(meeting).values() for meeting in meetings), strict=True)
        return Meeting(*map(statistics.median, columns))


def slow_network(
    windows: Sequence[Window], usual: Meeting | None, least_factor: float = SLOW_FACTOR
) -> Finding | None:
    """Find out whether the collectives themselves take longer than before; None if they do not.

    The threads of the transfer may get no core. So the cause is the CPU and not the network if a
    pod's threads stood still, or waited for cores, longer than before, and this explains half of
    the extra time of the collectives.

    Args:
        windows: The windows of the same steps, by rank.
        usual: How long the collectives took so far; None if that is not known yet.
        least_factor: How many times as long as before the steps have to take.
    """
    if len({window.node for window in windows}) < 2 or usual is None:
        return None  # one machine has no network
    now, last = Meeting.of(windows), min(windows, key=lambda window: window.wait)
    before = last.own + usual.wait
    if last.own + now.wait < least_factor * before:
        return None
    half = (now.wait - usual.wait) / 2
    cause = Cause.NETWORK
    if now.throttled - usual.throttled >= half:
        cause = Cause.THROTTLED  # comes first: it counts as pressure too
    elif now.pressed - usual.pressed >= half:
        cause = Cause.CROWDED
    factor = (last.own + now.wait) / before
    return Finding(cause, None, None, factor, now.wait, usual.wait)


def merged(spans: Sequence[tuple[int, Sequence[Window]]]) -> list[Window]:
    """Merge several windows of each rank, with their numbers of steps, into one for each rank.

    The values are means per step; `save` is the sum.
    """
    steps = sum(count for count, _ in spans)
    found = list[Window]()
    for rank in range(len(spans[0][1])):
        rows = [(count, windows[rank]) for count, windows in spans]

        def mean(part: str, rows: Sequence[tuple[int, Window]] = rows) -> float:
            return sum(count * _of(window, part) for count, window in rows) / steps

        means = ("data", "compute", "wait", "throttled", "delayed", "pressed")
        save = sum(window.save for _, window in rows)
        node = rows[-1][1].node
        found.append(Window(node=node, save=save, **{part: mean(part) for part in means}))
    return found

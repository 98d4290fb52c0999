"""Which rank slows the others down, and by what. Pure.

All ranks of a step take equally long, since they wait for each other. So what a rank needs by
itself, before it comes to the collective, is compared with what the others need.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum

SLOW_FACTOR = 1.3
"""A rank that needs so many times what the others need is slow,"""
LEAST_SHARE = 0.1
"""where what it needs more is at least this share of the step."""


class Cause(StrEnum):
    """Why a rank is slow, in the words of the log."""

    DATA = "data loading"
    COMPUTE = "compute"
    CHECKPOINT = "writing its part of a checkpoint"
    THROTTLED = "its CPU quota"
    CROWDED = "another process on the machine"
    NETWORK = "the network"


@dataclass(frozen=True)
class Window:
    """What one rank has measured over some steps. Seconds are per step where not noted.

    Args:
        node: rank of the node, as the entrypoints count.
        data: waiting for its batch.
        compute: forward and backward pass until the last gradient, and the update.
        wait: in collectives, until the others have come, and for the transfer.
        save: in this window in all, that training waited for this rank's part of a checkpoint.
        throttled: mean per step that its CPU quota had the pod stand still.
        delayed: mean per step that the thread that trains could run, but no core was free.
        pressed: mean per step that this held for any thread of the pod, as for one that transfers.
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
        """What the rank needs by itself for a step."""
        return self.data + self.compute

    def to_numbers(self) -> list[float]:
        """The numbers that the ranks exchange."""
        return [float(value) for value in vars(self).values()]

    @staticmethod
    def from_numbers(numbers: Sequence[float]) -> Window:
        """The inverse."""
        return Window(int(numbers[0]), *numbers[1:])


NUMBERS = len(fields(Window))


@dataclass(frozen=True)
class Finding:
    """What slows all ranks down.

    Args:
        cause: what the rank loses its time to.
        rank: which one; None where the collectives take longer, and no single rank is late.
        node: the rank's node; None likewise.
        factor: what it needs, as a multiple of what the others need.
        seconds: what it needs for that part of a step, or of a save.
        others_seconds: the median of the others, or what was usual before.
    """

    cause: Cause
    rank: int | None
    node: int | None
    factor: float
    seconds: float
    others_seconds: float

    @property
    def who(self) -> str:
        """`rank 2 on node 1`."""
        return "no single rank" if self.rank is None else f"rank {self.rank} on node {self.node}"

    def is_same(self, other: Finding) -> bool:
        """Whether it says the same of the same rank."""
        return (self.cause, self.rank) == (other.cause, other.rank)

    def __str__(self) -> str:
        """For people: `rank 2 on node 1 takes 1.8x as long as the others: data loading (...)`."""
        took = f"({self.seconds:.3f} s against {self.others_seconds:.3f} s)"
        if self.rank is None:
            return (
                f"{self.who}: all come to the collectives together, and steps take "
                f"{self.factor:.1f}x as long as before: {self.cause} {took}"
            )
        return f"{self.who} takes {self.factor:.1f}x as long as the others: {self.cause} {took}"


def slow_rank(windows: Sequence[Window], least_factor: float = SLOW_FACTOR) -> Finding | None:
    """The rank that needs longest for its part of a step, if it is that much slower.

    Args:
        windows: of the same steps, by rank.
        least_factor: that much.
    """
    if len(windows) < 2:
        return None
    rank = max(range(len(windows)), key=lambda rank: windows[rank].own)
    mine, others = windows[rank], [*windows[:rank], *windows[rank + 1 :]]
    usual = statistics.median(window.own for window in others)
    excess = mine.own - usual
    step = mine.own + mine.wait
    if mine.own < least_factor * usual or excess < LEAST_SHARE * step or excess <= 0:
        return None
    for cause, part in _PARTS:
        seconds, theirs = _of(mine, part), statistics.median(_of(each, part) for each in others)
        if seconds - theirs >= excess / 2:
            factor = mine.own / usual if usual > 0 else mine.own / excess
            return Finding(cause, rank, mine.node, factor, seconds, theirs)
    return None  # half of data and half of compute: the next windows will tell


# The first that explains half of what the rank needs more. A rank that gets no CPU waits for its
# batch and for its kernels alike; a thread that its quota keeps from running counts as delayed too.
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
    """The rank whose part of the checkpoints training has waited for.

    Args:
        spans: the windows since the last save before, each with its number of steps.
        least_factor: how much longer the steps have to be with it than with the others' saves.
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
    """What a step's collectives take where no rank is late. Seconds per step.

    Args:
        wait: in collectives, of the rank that waits least: for nobody, only for the transfer.
        throttled: of the pod that stood still longest.
        pressed: of the pod whose threads had no core for longest.
    """

    wait: float
    throttled: float
    pressed: float

    @staticmethod
    def of(windows: Sequence[Window]) -> Meeting:
        """Of the windows of all ranks."""
        return Meeting(
            min(window.wait for window in windows),
            max(window.throttled for window in windows),
            max(window.pressed for window in windows),
        )

    @staticmethod
    def usual(meetings: Sequence[Meeting]) -> Meeting:
        """The median of each."""
        columns = zip(*(vars(meeting).values() for meeting in meetings), strict=True)
        return Meeting(*map(statistics.median, columns))


def slow_network(
    windows: Sequence[Window], usual: Meeting | None, least_factor: float = SLOW_FACTOR
) -> Finding | None:
    """Whether the collectives themselves take longer than before.

    The threads of the transfer may have no core. So where a pod's threads stood still or waited for
    cores longer than before, for half of what the collectives take more, that is the cause.

    Args:
        windows: of the same steps, by rank.
        usual: what the collectives took so far.
        least_factor: how much longer the steps have to be.
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
        cause = Cause.THROTTLED  # the kernel counts it as pressure too
    elif now.pressed - usual.pressed >= half:
        cause = Cause.CROWDED
    factor = (last.own + now.wait) / before
    return Finding(cause, None, None, factor, now.wait, usual.wait)


def merged(spans: Sequence[tuple[int, Sequence[Window]]]) -> list[Window]:
    """One window for each rank, from several with their numbers of steps: the mean per step."""
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

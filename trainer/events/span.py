"""A part of a run's time, and what it was spent on."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What time is spent on; docs/goodput.md has the definitions."""

    PRODUCTIVE = "productive"
    LOST = "lost"
    DOWN = "down"
    IMAGE = "image"
    CONTAINER = "container"
    START = "start"
    RENDEZVOUS = "rendezvous"
    DATA = "data"
    RESTORE = "restore"
    SAVE = "save"
    EVALUATION = "evaluation"
    HANG = "hang"
    STOP = "stop"


class Phase(StrEnum):
    """The parts of the time from the end of training to the next first step, in their order."""

    DETECT = "detect"
    POD = "pod"
    START = "start"
    IMPORT = "import"
    RENDEZVOUS = "rendezvous"
    RESTORE = "restore"
    FIRST_STEP = "first step"


class Span(NamedTuple):
    """A part of the run's time.

    Args:
        begin, end: microseconds since the run's begin.
        kind: what it was spent on, as if no step were repeated.
        phase: the part of a start that it belongs to; None while the run trains.
        start: the number of the start that it belongs to, from 1.
        gpus: GPUs that the run holds or waits for.
        first, last: it is spent on the updates after the first one up to the last one; equal where
            it is not spent on updates.
        is_repeated: whether a later start has made these updates again.
    """

    begin: int
    end: int
    kind: Kind
    phase: Phase | None
    start: int
    gpus: int
    first: int = 0
    last: int = 0
    is_repeated: bool = False

    @property
    def length(self) -> int:
        """Microseconds."""
        return self.end - self.begin

    def repeated_after(self, step: int) -> list[Span]:
        """The span once a start has continued after `step` updates: what it repeats is cut off.

        Where only a part of its updates is repeated, each counts as long as the others.
        """
        if self.is_repeated or self.last <= step:
            return [self]
        updates = self.last - self.first  # none in a report that tells of no further update
        kept = max(0, step - self.first) * self.length // updates if updates else 0
        middle = self.begin + kept
        if middle == self.begin:
            return [self._replace(is_repeated=True)]
        before = self._replace(end=middle, last=step)
        return [before, self._replace(begin=middle, first=step, is_repeated=True)]

"""A part of a run's time, and what it was spent on."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What time is spent on; docs/goodput.md defines the kinds."""

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
        begin, end: Microseconds since the run's begin.
        kind: What the time was spent on, regardless of whether its steps are repeated later.
        phase: The phase of a start to which the span belongs; None while the run trains.
        start: The number of the start to which the span belongs, counted from 1.
        gpus: The number of GPUs that the run holds or waits for.
        first, last: The span was spent on the updates `first` + 1 to `last`. Both are equal if it
            was not spent on updates.
        is_repeated: Whether a later start has made these updates again.
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
        """The length in microseconds."""
        return self.end - self.begin

    def repeated_after(self, step: int) -> list[Span]:
        """Return the parts of this span, if a later start continues after `step` updates.

        That start repeats the later updates, so they become a span of their own with `is_repeated`.
        All updates of the span count as equally long.
        """
        if self.is_repeated or self.last <= step:
            return [self]
        updates = self.last - self.first  # 0 in a report without a further update
        kept = max(0, step - self.first) * self.length // updates if updates else 0
        middle = self.begin + kept
        if middle == self.begin:
            return [self._replace(is_repeated=True)]
        before = self._replace(end=middle, last=step)
        return [before, self._replace(begin=middle, first=step, is_repeated=True)]

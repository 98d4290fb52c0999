"""Decides what slows the ranks down, from several windows in a row that agree.

It also takes several windows in a row to decide that nothing slows the ranks down any more.

This module does no input or output.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from trainer.watch.slow import (
    SLOW_FACTOR,
    Finding,
    Meeting,
    Window,
    merged,
    slow_network,
    slow_rank,
    slow_save,
)

FAST_FACTOR = 1.15
"""A rank that counts as slow has to come below this factor, so that it no longer does."""
SPAN_SECONDS = 1.0
"""Windows are merged into spans of this length, because a few fast steps show nothing."""
SPANS = 2
"""How many spans, or saves, in a row have to agree."""
_LEAST_MEETINGS, _MOST_MEETINGS = 4, 100  # how many spans show what is usual
_MOST_WINDOWS = 1000  # assumed between two saves, until two saves were seen


class Pace:
    """Takes the windows of all ranks, and finds what slows them down for some time."""

    def __init__(self) -> None:
        self._steps, self._saves = _Lasting(), _Lasting()
        self._span, self._span_seconds = list[tuple[int, Sequence[Window]]](), 0.0
        self._meetings: deque[Meeting] = deque(maxlen=_MOST_MEETINGS)
        self._since_save = list[tuple[int, Sequence[Window]]]()
        self._usual_quiet, self._has_saved = _MOST_WINDOWS, False  # windows from save to save

    @property
    def finding(self) -> Finding | None:
        """What slows the ranks down now; None if nothing was found."""
        return self._steps.held or self._saves.held

    def take(self, steps: int, windows: Sequence[Window]) -> bool:
        """Take one window of each rank, and return whether `finding` has changed by that.

        Args:
            steps: How many steps the windows cover.
            windows: The windows of the same steps, by rank.
        """
        before = self.finding
        self._take_saves(steps, windows)
        self._span.append((steps, windows))
        self._span_seconds += steps * max(window.own + window.wait for window in windows)
        if self._span_seconds >= SPAN_SECONDS:
            self._take_span(merged(self._span))
            self._span, self._span_seconds = [], 0.0
        return not _say_the_same(before, self.finding)

    def _take_span(self, windows: Sequence[Window]) -> None:
        factor = SLOW_FACTOR if self._steps.held is None else FAST_FACTOR
        found = slow_rank(windows, factor) or slow_network(windows, self._usual(), factor)
        if found is None:
            self._meetings.append(Meeting.of(windows))
        self._steps.take(found)

    def _take_saves(self, steps: int, windows: Sequence[Window]) -> None:
        self._since_save.append((steps, windows))
        quiet = len(self._since_save)
        if any(window.save for window in windows):
            factor = SLOW_FACTOR if self._saves.held is None else FAST_FACTOR
            self._saves.take(slow_save(self._since_save, factor))
            self._usual_quiet = quiet if self._has_saved else _MOST_WINDOWS
            self._since_save, self._has_saved = [], True
        elif quiet % (2 * self._usual_quiet) == 0:  # no save has held up training for long
            self._saves.take(None)
            self._since_save = self._since_save[-_MOST_WINDOWS:]

    def _usual(self) -> Meeting | None:
        if len(self._meetings) < _LEAST_MEETINGS:
            return None
        return Meeting.usual(self._meetings)


class _Lasting:
    """Holds the last result, a finding or none, that SPANS spans or saves in a row agreed on."""

    def __init__(self) -> None:
        self.held: Finding | None = None
        self._candidate: Finding | None = None
        self._agreeing = 0

    def take(self, found: Finding | None) -> None:
        self._agreeing = self._agreeing + 1 if _say_the_same(found, self._candidate) else 1
        self._candidate = found
        if self._agreeing >= SPANS or _say_the_same(found, self.held):
            self.held = found


def _say_the_same(one: Finding | None, other: Finding | None) -> bool:
    return one is other if one is None or other is None else one.is_same(other)

"""Adds up the lengths of spans in groups that differ in what an account distinguishes.

This module does no input or output.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from trainer.events.median import Median
from trainer.events.span import Kind, Phase, Span


class Group(NamedTuple):
    """What the spans of a group have in common; see `Span`.

    Args:
        start: The number of the start; 0 if the spans are no part of a start.
        has_updates: Whether updates were made in the spans.
    """

    kind: Kind
    phase: Phase | None
    start: int
    gpus: int
    is_repeated: bool
    has_updates: bool

    @property
    def counts_as(self) -> Kind:
        """The kind, but LOST for productive time whose updates were made again."""
        is_lost = self.is_repeated and self.kind == Kind.PRODUCTIVE
        return Kind.LOST if is_lost else self.kind


class Sums:
    """The sums of the spans so far, in microseconds."""

    def __init__(self, saved_step: int) -> None:
        """`saved_step`: the number of updates in the newest checkpoint at the end of the events."""
        self._saved_step = saved_step
        self.lengths = Counter[Group]()
        self.usual_step = Median()
        """The median time of the steps that were not repeated."""
        self.unsaved = 0
        """The time of steps that count, but that a restart from the newest checkpoint repeats."""
        self.wall = self.gpus = 0

    def add(self, span: Span) -> None:
        """Count the next span."""
        kind, phase, length, updates = span.kind, span.phase, span.length, span.last - span.first
        start = span.start if phase is not None else 0
        group = Group(kind, phase, start, span.gpus, span.is_repeated, updates > 0)
        self.lengths[group] += length
        self.wall, self.gpus = span.end, span.gpus
        if kind == Kind.PRODUCTIVE and not span.is_repeated:
            if updates > 0:
                self.usual_step.add(length / updates)
            if span.last > self._saved_step:
                parts = span.repeated_after(self._saved_step)
                self.unsaved += sum(part.length for part in parts if part.is_repeated)

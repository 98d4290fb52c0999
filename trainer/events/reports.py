"""Writes rank 0's events about its steps, and about what it does between them."""

from __future__ import annotations

import time

from trainer.events.event import Name
from trainer.events.log import EventLog

LEAST_SECONDS = 1.0
"""The least time between two reports: the file of a long run grows by 30 MB a day at most."""


class Reports:
    """Collects what was measured since the last report, and writes it from time to time."""

    def __init__(self, events: EventLog, least_seconds: float = LEAST_SECONDS):
        self._events, self._least_seconds = events, least_seconds
        self._last = time.monotonic()
        self._reported_step = self._step = self._saved_step = 0
        self._data_seconds = self._save_seconds = self._longest_seconds = 0.0
        self._since, self._waited_seconds = self._last, 0.0  # since the last call of `stepped`
        self._is_held_up = False

    def first_step(self, step: int) -> None:
        """Write that the first update of this start is made; `step`: updates made so far."""
        self._events.write(Name.FIRST_STEP, step=step)
        self._step = self._reported_step = step
        self._last = self._since = time.monotonic()
        self._save_seconds = self._waited_seconds = 0.0

    def waited_for_save(self, seconds: float) -> None:
        """Note that training waited so many seconds for a save between two steps."""
        self._save_seconds += seconds
        self._waited_seconds += seconds

    def stepped(
        self, step: int, step_seconds: float, longest_seconds: float, data_seconds: float
    ) -> None:
        """Note that training has come to `step`, and write a report if it is time for one.

        Args:
            step: Updates made so far.
            step_seconds: The mean time of the updates since the last call.
            longest_seconds: The longest time of one of these updates, except the first of a start.
            data_seconds: The mean time of waiting for the batches of these updates.
        """
        steps, now = step - self._step, time.monotonic()
        beside_steps = now - self._since - steps * step_seconds - self._waited_seconds
        self._longest_seconds = max(self._longest_seconds, longest_seconds, beside_steps)
        self._data_seconds += data_seconds * steps
        self._step, self._since, self._waited_seconds = step, now, 0.0
        if time.monotonic() - self._last >= self._least_seconds:
            self._report()

    def saved(self, step: int) -> None:
        """Write that the newest complete checkpoint is of `step` (0: none), if that is new."""
        if step != self._saved_step:
            self._saved_step = step
            self._events.write(Name.SAVED, step=step)

    def held_up(self, name: Name) -> None:
        """Write that an evaluation or a save begins for which training waits."""
        self._report()
        self._events.write(name)
        self._is_held_up = True

    def resumed(self) -> None:
        """Write that training no longer waits; do nothing if it did not wait."""
        if self._is_held_up:
            self._events.write(Name.RESUMED)
            self._is_held_up = False
            self._last = self._since = time.monotonic()

    def _report(self) -> None:
        steps = self._step - self._reported_step
        if steps <= 0:
            return
        self._events.write(
            Name.REPORT,
            step=self._step,
            steps=steps,
            data_seconds=round(self._data_seconds, 4),
            save_seconds=round(self._save_seconds, 4),
            longest_seconds=round(self._longest_seconds, 4),
        )
        self._reported_step, self._last = self._step, time.monotonic()
        self._data_seconds = self._save_seconds = self._longest_seconds = 0.0

"""Rank 0's reports of its steps, and what it does between them."""

from __future__ import annotations

import time

from trainer.events.event import Name
from trainer.events.log import EventLog

LEAST_SECONDS = 1.0
"""Between two reports, so that the file of a long run stays small: 30 MB a day at the most."""


class Reports:
    """Gathers what was measured since the last report and writes it, not too often."""

    def __init__(self, events: EventLog, least_seconds: float = LEAST_SECONDS):
        self._events, self._least_seconds = events, least_seconds
        self._last = time.monotonic()
        self._reported_step = self._step = self._saved_step = 0
        self._data_seconds = self._save_seconds = self._longest_seconds = 0.0
        self._since, self._waited_seconds = self._last, 0.0  # of the last call of `stepped`
        self._is_held_up = False

    def first_step(self, step: int) -> None:
        """The first update of this start is made; `step`: updates made so far."""
        self._events.write(Name.FIRST_STEP, step=step)
        self._step = self._reported_step = step
        self._last = self._since = time.monotonic()
        self._save_seconds = self._waited_seconds = 0.0

    def waited_for_save(self, seconds: float) -> None:
        """A save held training up between two steps."""
        self._save_seconds += seconds
        self._waited_seconds += seconds

    def stepped(
        self, step: int, step_seconds: float, longest_seconds: float, data_seconds: float
    ) -> None:
        """Training has come to `step`.

        Args:
            step: updates made so far.
            step_seconds: mean of the updates since the last call.
            longest_seconds: of one of them, the first of a start left out.
            data_seconds: mean of the wait for their batches.
        """
        steps, now = step - self._step, time.monotonic()
        beside_steps = now - self._since - steps * step_seconds - self._waited_seconds
        self._longest_seconds = max(self._longest_seconds, longest_seconds, beside_steps)
        self._data_seconds += data_seconds * steps
        self._step, self._since, self._waited_seconds = step, now, 0.0
        if time.monotonic() - self._last >= self._least_seconds:
            self._report()

    def saved(self, step: int) -> None:
        """The newest checkpoint that is in its place is of `step`; 0: there is none."""
        if step != self._saved_step:
            self._saved_step = step
            self._events.write(Name.SAVED, step=step)

    def held_up(self, name: Name) -> None:
        """An evaluation or a save begins that holds training up."""
        self._report()
        self._events.write(name)
        self._is_held_up = True

    def resumed(self) -> None:
        """Nothing holds training up; without effect where nothing did."""
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

"""Publishes what this rank does, in a few numbers that the entrypoint can read if the rank hangs.

The numbers are in a file that is mapped into memory (trainer/launch/status_files.py has its path).
So publishing takes less than a microsecond, and no reader is needed.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path


class Phase(IntEnum):
    """What a rank does. The numbers have the order of one step."""

    START = 0
    SAVE = 1
    DATA = 2
    PASSES = 3
    UPDATE = 4
    AGREEMENT = 5
    REPORT = 6
    EVALUATION = 7

    @property
    def words(self) -> str:
        """Words for people that complete `the rank is in ...`."""
        return _WORDS[self]


_WORDS = {
    Phase.START: "its start",
    Phase.SAVE: "saving",
    Phase.DATA: "data loading",
    Phase.PASSES: "the forward and backward pass",
    Phase.UPDATE: "the update",
    Phase.AGREEMENT: "the agreement after the update",
    Phase.REPORT: "the sums for the log",
    Phase.EVALUATION: "the evaluation",
}
_COUNT, _STEP, _PHASE, _WAITS, _LONGEST_WAIT, _STEPS_MADE = range(6)
_BYTES = 8 * 6
NO_STEP = -1
"""The step before the first update after a start."""


@dataclass(frozen=True)
class Seen:
    """What the entrypoint has read about a rank.

    Args:
        count: A number that rises whenever the rank publishes something. If two readings have the
            same count, the rank has not moved between them.
        step: The update that the rank makes, counted from 0 as in the training loop; or NO_STEP.
        phase: What the rank does.
        waits: Whether the rank has entered a collective and has not left it.
        longest_wait_seconds: How long the rank may be in one collective; 0 if it has not said.
        steps_made: How many updates the rank has made since its start.
    """

    count: int
    step: int
    phase: Phase
    waits: bool
    longest_wait_seconds: int
    steps_made: int


class Beat:
    """The numbers of this process; no other process can read them until `share` is called."""

    def __init__(self) -> None:
        self._numbers = memoryview(bytearray(_BYTES)).cast("q")
        self._numbers[_STEP] = NO_STEP

    def share(self, path: Path) -> None:
        """Keep the numbers in the file `path` from now on; its folder must exist."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.truncate(descriptor, _BYTES)
            shared = memoryview(mmap.mmap(descriptor, _BYTES)).cast("q")
            shared[:] = self._numbers
            self._numbers = shared
        finally:
            os.close(descriptor)

    def at(self, phase: Phase, step: int) -> None:
        """Publish that the rank comes to `phase` of `step`. Call this once for each step."""
        if self._numbers[_STEP] != NO_STEP:
            self._numbers[_STEPS_MADE] += 1
        self._numbers[_STEP] = step
        self._numbers[_PHASE] = phase
        self._numbers[_COUNT] += 1

    def phase(self, phase: Phase) -> None:
        """Publish that the rank comes to `phase` of the same step, and is in no collective."""
        self._numbers[_PHASE] = phase
        self._numbers[_WAITS] = 0
        self._numbers[_COUNT] += 1

    def enter(self) -> None:
        """Publish that the rank waits in a collective from now on."""
        self._numbers[_WAITS] = 1
        self._numbers[_COUNT] += 1

    def leave(self) -> None:
        """Publish that the collective has ended."""
        self._numbers[_WAITS] = 0
        self._numbers[_COUNT] += 1

    def bound_waits(self, seconds: int) -> None:
        """Publish the longest time that the rank may be in one collective."""
        self._numbers[_LONGEST_WAIT] = seconds


BEAT = Beat()
"""The numbers of this process. All code uses this object, because a process is one rank."""


def read_beat(path: Path) -> Seen | None:
    """Return what the rank of the file `path` has published; None if there is nothing yet."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if len(content) != _BYTES:
        return None
    numbers = memoryview(content).cast("q")
    phase = Phase(numbers[_PHASE])
    waits, longest = bool(numbers[_WAITS]), numbers[_LONGEST_WAIT]
    return Seen(numbers[_COUNT], numbers[_STEP], phase, waits, longest, numbers[_STEPS_MADE])

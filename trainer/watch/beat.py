"""Where this rank is now, in a few numbers that the entrypoint can read while the rank hangs.

They are in a file that is mapped into memory (trainer/launch/status_files.py says where), so
telling takes less than a microsecond and needs nobody to listen.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path


class Phase(IntEnum):
    """What a rank does, in the order of one step."""

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
        """Words for people that follow `the rank is in`."""
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
_COUNT, _STEP, _PHASE, _WAITS, _LONGEST_WAIT = range(5)
_BYTES = 8 * 5
NO_STEP = -1
"""Before the first update of a start."""


@dataclass(frozen=True)
class Seen:
    """What the entrypoint reads.

    Args:
        count: rises whenever the rank tells something; the same count twice: it has not moved.
        step: the update that the rank makes, counted from 0 as the loop does; or NO_STEP.
        phase: what it does.
        waits: whether it has entered a collective and not left it.
        longest_wait_seconds: so long it may be in one collective; 0: it has not said.
    """

    count: int
    step: int
    phase: Phase
    waits: bool
    longest_wait_seconds: int


class Beat:
    """The numbers of this process; shared with nobody until `share` is called."""

    def __init__(self) -> None:
        self._numbers = memoryview(bytearray(_BYTES)).cast("q")
        self._numbers[_STEP] = NO_STEP

    def share(self, path: Path) -> None:
        """From now on in that file, which others may map; its folder must exist."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.truncate(descriptor, _BYTES)
            shared = memoryview(mmap.mmap(descriptor, _BYTES)).cast("q")
            shared[:] = self._numbers
            self._numbers = shared
        finally:
            os.close(descriptor)

    def at(self, phase: Phase, step: int) -> None:
        """The rank comes to `phase` of `step`."""
        self._numbers[_STEP] = step
        self._numbers[_PHASE] = phase
        self._numbers[_COUNT] += 1

    def phase(self, phase: Phase) -> None:
        """The rank comes to `phase` of the step that was told last, and is in no collective."""
        self._numbers[_PHASE] = phase
        self._numbers[_WAITS] = 0
        self._numbers[_COUNT] += 1

    def enter(self) -> None:
        """The rank waits in a collective from now on."""
        self._numbers[_WAITS] = 1
        self._numbers[_COUNT] += 1

    def leave(self) -> None:
        """The collective has ended."""
        self._numbers[_WAITS] = 0
        self._numbers[_COUNT] += 1

    def bound_waits(self, seconds: int) -> None:
        """From now on the rank is to be in no collective for longer."""
        self._numbers[_LONGEST_WAIT] = seconds


BEAT = Beat()
"""Of this process. It is one for all, since a process is one rank, in one place at a time."""


def read_beat(path: Path) -> Seen | None:
    """What that rank tells; None where it has told nothing yet."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if len(content) != _BYTES:
        return None
    numbers = memoryview(content).cast("q")
    phase = Phase(numbers[_PHASE])
    waits, longest = bool(numbers[_WAITS]), numbers[_LONGEST_WAIT]
    return Seen(numbers[_COUNT], numbers[_STEP], phase, waits, longest)

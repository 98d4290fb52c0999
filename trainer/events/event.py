"""What happened in a run and when: one line of an event file.

Every line is one flat JSON object. It begins with a newline and has none at its end: what a killed
process has written of a line, if that is not all of it, spoils no other line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple

EVENTS_DIR = "events"


class Name(StrEnum):
    """What an event says. Those of the entrypoint, then those of rank 0."""

    POD_STARTED = "pod_started"
    """The entrypoint begins. `age_seconds`: of its process; `gpus`: one for each rank. Where it is
    known: `container_seconds`, `image_seconds` and `pod` (pod_begin.py)."""
    GATHERING = "gathering"
    """It waits for the other nodes of the run."""
    VOLUME_PROVEN = "volume_proven"
    """This node has written to the volume, and seen what all others have written (trainer/volume/).
    `nodes`: how many there are; `write_seconds`, `rename_seconds`, `visible_seconds`,
    `file_system`."""
    ROUND_BEGUN = "round_begun"
    """All nodes are there. `round`: its number; `ranks`: how many take part."""
    RANKS_STARTED = "ranks_started"
    TRANSPORT = "transport"
    """How ranks of this node reach the others (trainer/transport/): `rank`, `transport`, `device`
    and `gpu_direct`, each several divided by commas; `asked`: what the network profile asks for;
    `as_asked`: null where that is not known."""
    STOP_REQUESTED = "stop_requested"
    FAILING = "failing"
    """A rank, or another node, has failed: the ranks are being ended."""
    HANG = "hang"
    """No rank moves any more, and this `rank` of this `node` holds up the others, in `phase` of
    `step`, at the Python line `place`; `process`: the letter of its state; `seconds`: so far. Of a
    node that says nothing only `node` and `seconds` are known."""
    ROUND_ENDED = "round_ended"
    """No rank of this node runs any more. `reason`: why."""
    ENDED = "ended"
    """The entrypoint ends, or a rank that has none. `how`: done, preempted, retryable or fatal."""
    ALIVE = "alive"
    """Every few seconds, so that an end by kill -9 is known to be later than the last one."""

    IMPORTS_DONE = "imports_done"
    CONNECTED = "connected"
    """All ranks have found each other."""
    DATA_OPENED = "data_opened"
    RESTORED = "restored"
    """Model and optimizer are there. `step`: updates made so far; `tokens_per_step`."""
    FIRST_STEP = "first_step"
    """The first update of this start is made. `step`: updates made so far."""
    REPORT = "report"
    """`step`: updates made so far; `steps`, `data_seconds`, `save_seconds`: since the last report;
    `longest_seconds`: of one of these steps, or of what came between two."""
    EVALUATING = "evaluating"
    SAVING = "saving"
    """A save begins that holds training up."""
    RESUMED = "resumed"
    """The evaluation or the save holds training up no longer."""
    SAVED = "saved"
    """The checkpoint of `step` is in its place."""
    LEFT_LOOP = "left_loop"
    """Rank 0 was asked to stop, has saved, and makes no more steps."""
    SLOW_RANK = "slow_rank"
    """One rank slows the others down (trainer/watch/slow.py). `rank` and `node`: null where it is
    the network; `cause`; `factor`; `seconds` and `others_seconds`: for the part that is slow."""
    NO_SLOW_RANK = "no_slow_rank"
    """That is over."""
    FINISHED = "finished"
    """The run is finished, with `step` updates."""


NUMBERS: Mapping[str, tuple[str, ...]] = {
    Name.POD_STARTED: ("age_seconds", "gpus"),
    Name.RESTORED: ("step", "tokens_per_step"),
    Name.FIRST_STEP: ("step",),
    Name.REPORT: ("step", "steps", "data_seconds", "save_seconds", "longest_seconds"),
    Name.SAVED: ("step",),
    Name.SLOW_RANK: ("factor", "seconds", "others_seconds"),
    Name.FINISHED: ("step",),
}
"""What has to be there and to be a number that is not negative, by the event's name."""
MAY_BE_NUMBERS: Mapping[str, tuple[str, ...]] = {
    Name.POD_STARTED: ("container_seconds", "image_seconds"),
}
"""What may be missing, and else is such a number."""


class Event(NamedTuple):
    """One event.

    Args:
        name: one of `Name`, or of a later version of the trainer.
        unix_seconds: when, by the machine's clock, which may be set at any time.
        monotonic_seconds: when, by a clock that nobody sets; it begins with the machine.
        boot: which start of which machine that clock belongs to.
        values: what else the event says.
    """

    name: str
    unix_seconds: float
    monotonic_seconds: float
    boot: str
    values: Mapping[str, Any] = MappingProxyType({})

    def number(self, key: str) -> float:
        """A value that `NUMBERS` promises."""
        return float(self.values[key])

    def step(self) -> int:
        """The number of updates made so far, of an event that has it."""
        return int(self.values["step"])


def event_file(run_dir: Path, node: int) -> Path:
    """Where the events of a node are; rank 0 writes into the file of node 0."""
    return run_dir / EVENTS_DIR / f"node-{node:05d}.jsonl"


def to_line(event: Event) -> bytes:
    """The event as it is appended to a file."""
    content = {
        "event": str(event.name),
        "time": round(event.unix_seconds, 3),
        "monotonic": round(event.monotonic_seconds, 6),
        "boot": event.boot,
        **event.values,
    }
    return b"\n" + json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


class Events:
    """The events of a file in its order, read anew each time that somebody goes through them.

    So nobody has to hold them all: the file of a long run has millions. What is appended to the
    file meanwhile is left out, so that each reading gives the same.
    """

    def __init__(self, open_lines: Callable[[], IO[bytes]]) -> None:
        """`open_lines` opens the file; its errors (OSError) come through."""
        self._open_lines = open_lines
        with open_lines() as lines:
            self._size_bytes = lines.seek(0, os.SEEK_END)
        self.damaged_lines = 0
        """How many lines the last reading has left out."""

    @classmethod
    def of(cls, content: bytes) -> Events:
        """The events of a file whose content is here."""
        return cls(lambda: BytesIO(content))

    @classmethod
    def of_file(cls, path: Path) -> Events:
        """The events of a file. Raises OSError, also while they are read: it cannot be read."""
        return cls(lambda: path.open("rb"))

    def __iter__(self) -> Iterator[Event]:
        self.damaged_lines, left = 0, self._size_bytes
        with self._open_lines() as lines:
            while left > 0 and (line := lines.readline(left)):
                left -= len(line)
                if line := line.strip():
                    event = _parse(line)
                    if event is None:
                        self.damaged_lines += 1
                    else:
                        yield event


def parse_events(content: bytes) -> tuple[list[Event], int]:
    """All events of a file, in its order, and how many lines are damaged."""
    events = Events.of(content)
    return list(events), events.damaged_lines


_DECODER = json.JSONDecoder()


def _parse(line: bytes) -> Event | None:
    """The event of a line without blanks around it; None where the line is damaged."""
    try:
        text = line.decode()
        given, end = _DECODER.raw_decode(text)
        name, boot = str(given.pop("event")), str(given.pop("boot"))
        times = float(given.pop("time")), float(given.pop("monotonic"))
        numbers = [*times, *(float(given[key]) for key in NUMBERS.get(name, ()))]
        numbers += [float(given[key]) for key in MAY_BE_NUMBERS.get(name, ()) if key in given]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    # Of a number that is not finite (nan) no comparison is true.
    are_fine = end == len(text) and all(0 <= number < 1e15 for number in numbers)
    return Event(name, *times, boot, given) if are_fine else None

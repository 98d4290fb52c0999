"""An event of a run (what happened and when), and the event file, which has a line for each event.

Every line is one flat JSON object. It begins with a newline and has none at its end. So if a killed
process has written only a part of its line, no other line is damaged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from io import BufferedIOBase, BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple

EVENTS_DIR = "events"


class Name(StrEnum):
    """The names of the events: first those of the entrypoint, then those of rank 0."""

    POD_STARTED = "pod_started"
    """The entrypoint begins. `age_seconds`: the age of its process; `gpus`: the number of the run's
    GPUs, one for each rank. If known: `container_seconds`, `image_seconds` and `pod`, as
    pod_begin.py describes them."""
    GATHERING = "gathering"
    """The entrypoint waits for the other nodes of the run."""
    VOLUME_PROVEN = "volume_proven"
    """This node has written to the volume, and has seen what all other nodes have written
    (trainer/volume/). `nodes`: how many nodes there are; `write_seconds`, `rename_seconds`,
    `visible_seconds`, `file_system`."""
    ROUND_BEGUN = "round_begun"
    """All nodes are there. `round`: its number; `ranks`: how many take part."""
    RANKS_STARTED = "ranks_started"
    TRANSPORT = "transport"
    """How the ranks of this node reach other ranks (trainer/transport/). `rank`, `transport`,
    `device` and `gpu_direct` may each have several values, separated by commas. `asked`: what the
    network profile asks for; `as_asked`: whether the ranks use that, null if not known."""
    STOP_REQUESTED = "stop_requested"
    FAILING = "failing"
    """A rank, or another node, has failed: the ranks are being ended."""
    HANG = "hang"
    """No rank moves any more, and the rank `rank` of node `node` holds up the others. It is in
    `phase` of `step`, at the Python line `place`. `process`: the letter of its process's state;
    `seconds`: how long no rank has moved. If a node has not reported its ranks, only `node` and
    `seconds` are known, and `rank` is null."""
    ROUND_ENDED = "round_ended"
    """No rank of this node runs any more. `how` and `reason`: how they ended, and why."""
    ENDED = "ended"
    """The entrypoint ends, or a rank that was started without one. `how`: done, preempted,
    retryable or fatal."""
    ALIVE = "alive"
    """Written if nothing else happens for some seconds. An end by kill -9 leaves no event, but it
    must have come after the last of these."""

    IMPORTS_DONE = "imports_done"
    CONNECTED = "connected"
    """All ranks are connected to each other."""
    DATA_OPENED = "data_opened"
    RESTORED = "restored"
    """Model and optimizer are ready. `step`: updates made so far; `tokens_per_step`."""
    FIRST_STEP = "first_step"
    """The first update of this start is made. `step`: updates made so far."""
    REPORT = "report"
    """Steps were made. `step`: updates made so far. `steps`, `data_seconds` and `save_seconds`: the
    steps, the wait for data and the wait for saves since the last report. `longest_seconds`: the
    time of the longest of these steps, or of the longest pause between two steps."""
    EVALUATING = "evaluating"
    SAVING = "saving"
    """A save begins for which training waits."""
    RESUMED = "resumed"
    """Training no longer waits for the evaluation or the save."""
    SAVED = "saved"
    """The checkpoint of `step` is complete and in its place."""
    LEFT_LOOP = "left_loop"
    """Rank 0 was asked to stop, has saved, and makes no further steps."""
    SLOW_RANK = "slow_rank"
    """One rank slows the others down, or the collectives are slow; see trainer/watch/slow.py.
    `rank` and `node`: null if no single rank is late; `cause`; `factor`; `seconds` and
    `others_seconds`: the time of the slow part."""
    NO_SLOW_RANK = "no_slow_rank"
    """No rank slows the others down any more."""
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
"""The values that an event must have, by its name; each is a number that is not negative."""
MAY_BE_NUMBERS: Mapping[str, tuple[str, ...]] = {
    Name.POD_STARTED: ("container_seconds", "image_seconds"),
}
"""The values that an event may have, by its name; each is a number that is not negative."""


class Event(NamedTuple):
    """One event.

    Args:
        name: One of `Name`, or a name from a later version of the trainer.
        unix_seconds: When it happened, in seconds since 1970 by the machine's clock, which may be
            set at any time.
        monotonic_seconds: When it happened, by the machine's monotonic clock, which cannot be set.
        boot: Identifies the machine and its boot to which the monotonic clock belongs.
        values: The further values of the event.
    """

    name: str
    unix_seconds: float
    monotonic_seconds: float
    boot: str
    values: Mapping[str, Any] = MappingProxyType({})

    def number(self, key: str) -> float:
        """Return one of the values in `NUMBERS`."""
        return float(self.values[key])

    def step(self) -> int:
        """Return the number of updates made so far, from an event that has it."""
        return int(self.values["step"])


def event_file(run_dir: Path, node: int) -> Path:
    """Return the path of a node's event file; rank 0 also writes to the file of node 0."""
    return run_dir / EVENTS_DIR / f"node-{node:05d}.jsonl"


def to_line(event: Event) -> bytes:
    """Return the line of an event, as it is appended to a file.

    Raises:
        ValueError: a number is not finite.
    """
    content = {
        "event": str(event.name),
        "time": round(event.unix_seconds, 3),
        "monotonic": round(event.monotonic_seconds, 6),
        "boot": event.boot,
        **event.values,
    }
    return b"\n" + json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


class Events:
    """The events of a file in its order. Each iteration reads the file again.

    So the events need not be held in memory: the file of a long run has millions. What is appended
    to the file after this object was made is left out, so that each iteration gives the same.
    """

    def __init__(self, open_lines: Callable[[], IO[bytes] | BufferedIOBase]) -> None:
        """Note the size of the file. `open_lines` opens it, and may raise OSError."""
        self._open_lines = open_lines
        with open_lines() as lines:
            self._size_bytes = lines.seek(0, os.SEEK_END)
        self.damaged_lines = 0
        """How many damaged lines the last iteration has left out."""

    @classmethod
    def of(cls, content: bytes) -> Events:
        """Return the events of a file with the given content."""
        return cls(lambda: BytesIO(content))

    @classmethod
    def of_file(cls, path: Path) -> Events:
        """Return the events of the file `path`.

        Raises:
            OSError: the file cannot be read. An iteration may raise it too.
        """
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
    """Return all events of a file, in its order, and the number of damaged lines."""
    events = Events.of(content)
    return list(events), events.damaged_lines


_DECODER = json.JSONDecoder()


def _parse(line: bytes) -> Event | None:
    """Return the event of a stripped line; None if the line is damaged."""
    try:
        text = line.decode()
        given, end = _DECODER.raw_decode(text)
        name, boot = str(given.pop("event")), str(given.pop("boot"))
        times = float(given.pop("time")), float(given.pop("monotonic"))
        numbers = [*times, *(float(given[key]) for key in NUMBERS.get(name, ()))]
        numbers += [float(given[key]) for key in MAY_BE_NUMBERS.get(name, ()) if key in given]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    # For NaN, no comparison is true.
    are_fine = end == len(text) and all(0 <= number < 1e15 for number in numbers)
    return Event(name, *times, boot, given) if are_fine else None

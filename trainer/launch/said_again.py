"""Decides which lines to repeat so that they are found among the last lines of a node's log.

This module does no input or output.

`./disttrain status` reads only the last lines of a pod, and may read nothing else of a run. There
it looks for the last verified checkpoint, for the run's goodput, and for the last step of a user's
own program. Such a line is soon followed by many others, about steps or from the user's program. So
it is repeated before `EVERY_LINES` other lines have followed it, with the time when it was first
printed:

[node 0] said at 2026-11-22T06:40:09Z: continuing after step 50 from step-00000050
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from trainer.checkpoint.verified_words import Verified, newer_of, read_verified

EVERY_LINES = 100
"""Half of the lines that `./disttrain status` reads of a pod (cli/status/snapshot.py)."""
_AGAIN = re.compile(r"said at (?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ): (?P<text>.*)")
_GOODPUT = re.compile(rb"\[node \d+\] goodput \d")
_VERIFIED = (b"continuing after step ", b"[mirror] step ")
_STEP = re.compile(rb"\[node \d+\] program: step \d")
# After such a line, the last step belongs to ranks that have ended (see cli/status/progress.py).
_ENDED = re.compile(
    rb"\[node \d+\] (?:round \d|training stopped: |starting again after a failed pod: )"
)


def said_again(at: datetime, text: str) -> str:
    """Return the text, for `NodeOutput.say`, that repeats the line `text` from the time `at`."""
    return f"said at {at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}: {text}"


def read_again(text: str) -> tuple[datetime, str] | None:
    """Return when a repeated line was first printed, and the line.

    The result is None if `text` does not repeat a line.
    """
    found = _AGAIN.fullmatch(text)
    try:
        return (datetime.fromisoformat(found["at"]), found["text"]) if found else None
    except ValueError:  # a user's own program printed something similar
        return None


@dataclass
class _Kept:
    """A line that must stay among the last ones, and how many lines have followed it."""

    at: datetime
    text: str
    lines_since: int = 0


class SaidAgain:
    """Sees every line of a node before it is printed, and says which lines to repeat."""

    def __init__(self) -> None:
        self._verified: Verified | None = None
        self._kept: dict[str, _Kept] = {}

    def before(self, at: datetime, line: bytes) -> list[str]:
        """Return the texts, for `NodeOutput.say`, to print before `line`; mostly none.

        They are printed before and not after it, because `line` may have to stay the last line of
        its process.
        """
        due = list[str]()
        for kept in self._kept.values():
            kept.lines_since += 1
            if kept.lines_since >= EVERY_LINES:
                kept.lines_since = 0
                due.append(said_again(kept.at, kept.text))
        self._keep(at, line)
        return due

    def _keep(self, at: datetime, line: bytes) -> None:
        if _GOODPUT.match(line):
            self._kept["goodput"] = _Kept(at, line.decode(errors="replace"))
        elif _STEP.match(line):
            self._kept["step"] = _Kept(at, line.decode(errors="replace"))
        elif _ENDED.match(line):
            self._kept.pop("step", None)
        elif line.startswith(_VERIFIED):
            text = line.decode(errors="replace")
            found = read_verified(text)
            if found and newer_of(self._verified, found) is found:
                self._verified = found
                self._kept["verified"] = _Kept(at, text)

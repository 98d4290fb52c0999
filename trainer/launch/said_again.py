"""Says again, in a node's log, what has to be found among its last lines. Pure.

`./disttrain status` reads the last lines of a pod alone, and may read nothing else of a run: which
checkpoint was last verified, and the run's goodput, would be pushed out of them by the lines of the
steps, and the last step of a program of the user's own by what that prints after it. So such a line
comes again before `EVERY_LINES` others have followed it, with the time when it was first said:

[node 0] said at 2026-11-22T06:40:09Z: continuing after step 50 from step-00000050
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from trainer.checkpoint.verified_words import Verified, newer_of, read_verified

EVERY_LINES = 100
"""Half of the lines that status reads of a pod (cli/status/look.py)."""
_AGAIN = re.compile(r"said at (?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ): (?P<text>.*)")
_GOODPUT = re.compile(rb"\[node \d+\] goodput \d")
_VERIFIED = (b"continuing after step ", b"[mirror] step ")
_STEP = re.compile(rb"\[node \d+\] program: step \d")
# Lines after which a step is one of processes that have ended (cli/status/progress.py reads them).
_ENDED = re.compile(
    rb"\[node \d+\] (?:round \d|training stopped: |starting again after a failed pod: )"
)


def said_again(at: datetime, text: str) -> str:
    """The line, for `NodeOutput.say`."""
    return f"said at {at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}: {text}"


def read_again(text: str) -> tuple[datetime, str] | None:
    """When a line was first said, and the line; None where `text` is no such one."""
    found = _AGAIN.fullmatch(text)
    try:
        return (datetime.fromisoformat(found["at"]), found["text"]) if found else None
    except ValueError:  # a program of the user's own wrote something like it
        return None


@dataclass
class _Kept:
    """A line that must stay in sight, and how many have come since it was last said."""

    at: datetime
    text: str
    lines_since: int = 0


class SaidAgain:
    """Is shown every line of a node before it is printed."""

    def __init__(self) -> None:
        self._verified: Verified | None = None
        self._kept: dict[str, _Kept] = {}

    def before(self, at: datetime, line: bytes) -> list[str]:
        """What has to be said again before `line`, as for `NodeOutput.say`; mostly nothing.

        Before and not after it, as a line may have to be the last one of its process.
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

"""Writes the log lines about saves, and reads them for `./disttrain status`. Pure.

checkpoint step-00000050 is being written             the save begins; training goes on
training waits for checkpoint step-00000050           the save is under way and holds up training
checkpoint step-00000050 saved in 3.21 s              the checkpoint is complete
[warning: ]the checkpoint of step 50 could not be written: ...
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_BEGUN = "checkpoint {} is being written"
_WAITED_FOR = "training waits for checkpoint {}"
_SAVED = "checkpoint {} saved in {:.2f} s"
_FAILED = "the checkpoint of step {} could not be written"
_STEP = r"step-(?P<step>\d+)"
_BEGINNINGS = {
    "begun": re.compile(_BEGUN.format(_STEP)),
    "waited for": re.compile(_WAITED_FOR.format(_STEP)),
    "saved": re.compile(rf"checkpoint {_STEP} saved"),
    "failed": re.compile(r"(?:warning: )?" + _FAILED.format(r"(?P<step>\d+)")),
}


@dataclass(frozen=True)
class SaveLine:
    """The content of such a line: the save of `step` is begun, waited for, saved or failed."""

    what: str
    step: int


def read_line(text: str) -> SaveLine | None:
    """Read a line of the log. The result is None if the line is not about a save."""
    for what, pattern in _BEGINNINGS.items():
        if found := pattern.match(text):
            return SaveLine(what, int(found["step"]))
    return None


def begun(name: str) -> str:
    """Return the line: the save of the checkpoint folder `name` begins."""
    return _BEGUN.format(name)


def waited_for(name: str) -> str:
    """Return the line: training waits for the checkpoint folder `name`."""
    return _WAITED_FOR.format(name)


def saved(name: str, seconds: float) -> str:
    """Return the line: the checkpoint is complete, `seconds` after its save began."""
    return _SAVED.format(name, seconds)


def failed(step: int) -> str:
    """Return the text: the checkpoint of `step` could not be written."""
    return _FAILED.format(step)

"""What the log says of saves, and how `./disttrain status` reads it. Pure.

checkpoint step-00000050 is being written             the save begins; training goes on
training waits for checkpoint step-00000050           it is still under way, and holds up training
checkpoint step-00000050 saved in 3.21 s              it is in its place
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
    """What a line says: that the save of `step` is begun, waited for, saved or failed."""

    what: str
    step: int


def read_line(text: str) -> SaveLine | None:
    """What a line says of a save; None where it says nothing of one."""
    for what, pattern in _BEGINNINGS.items():
        if found := pattern.match(text):
            return SaveLine(what, int(found["step"]))
    return None


def begun(name: str) -> str:
    """The save of the checkpoint whose folder has this name begins."""
    return _BEGUN.format(name)


def waited_for(name: str) -> str:
    """Training waits for it."""
    return _WAITED_FOR.format(name)


def saved(name: str, seconds: float) -> str:
    """Says that a checkpoint is in its place, `seconds` after it was begun."""
    return _SAVED.format(name, seconds)


def failed(step: int) -> str:
    """Says that a checkpoint could not be written."""
    return _FAILED.format(step)

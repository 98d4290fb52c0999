"""What the log says where every byte of a checkpoint was read and had its sha256. Pure.

A save alone verifies nothing: its sha256 is made of what is written, and nobody reads that again.

continuing after step 50 from step-00000050                a start has read it, on all ranks
[mirror] step 50: 1,234 bytes copied in 0.5 s              it was read to be copied to the mirror
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_CONTINUED = re.compile(r"continuing after step (?P<step>\d+) from step-(?P<same>\d{8})")
_COPIED = re.compile(r"\[mirror\] step (?P<step>\d+): [\d,]+ bytes copied in [\d.]+ s")
BY_START, BY_MIRROR = "the start that continued from it", "the copy to the mirror"


@dataclass(frozen=True)
class Verified:
    """A line says that the checkpoint of `step` was verified, and by what."""

    step: int
    by: str


def read_verified(text: str) -> Verified | None:
    """What a line says of that; None where it says nothing of it."""
    if (found := _CONTINUED.fullmatch(text)) and int(found["step"]) == int(found["same"]):
        return Verified(int(found["step"]), BY_START)
    if found := _COPIED.fullmatch(text):
        return Verified(int(found["step"]), BY_MIRROR)
    return None


def newer_of(known: Verified | None, found: Verified) -> Verified:
    """Which of two counts, of which `found` was said later.

    It is the newer checkpoint; but a start that takes an older one has found the newer ones
    damaged.
    """
    if found.by != BY_START and known is not None and known.step > found.step:
        return known
    return found


def continued(step: int, name: str) -> str:
    """All ranks have read the checkpoint whose folder has this name, and go on from it."""
    return f"continuing after step {step} from {name}"


def copied(step: int, sent_bytes: int, seconds: float) -> str:
    """Says that it is whole in the mirror, whose process puts its name before the line."""
    return f"step {step}: {sent_bytes:,} bytes copied in {seconds:.1f} s"

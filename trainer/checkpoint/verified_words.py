"""Writes and reads the log lines that show that a checkpoint was verified. Pure.

Verified means that every byte of the checkpoint was read and had the right sha256. A save alone
verifies nothing: it computes the sha256 of the bytes that it writes, and does not read them again.

continuing after step 50 from step-00000050                a start has read it, on all ranks
[mirror] step 50: 1,234 bytes copied in 0.5 s              it was read to be copied to the mirror
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_CONTINUED = re.compile(r"continuing after step (?P<step>\d+) from step-(?P<same>\d{8,})")
_COPIED = re.compile(r"\[mirror\] step (?P<step>\d+): [\d,]+ bytes copied in [\d.]+ s")
BY_START, BY_MIRROR = "the start that continued from it", "the copy to the mirror"


@dataclass(frozen=True)
class Verified:
    """The content of such a line: the checkpoint of `step` was verified, and by what."""

    step: int
    by: str


def read_verified(text: str) -> Verified | None:
    """Read a line of the log. The result is None if the line does not show a verification."""
    if (found := _CONTINUED.fullmatch(text)) and int(found["step"]) == int(found["same"]):
        return Verified(int(found["step"]), BY_START)
    if found := _COPIED.fullmatch(text):
        return Verified(int(found["step"]), BY_MIRROR)
    return None


def newer_of(known: Verified | None, found: Verified) -> Verified:
    """Return the verification that is valid now; `found` is of a later line than `known`.

    It is the one of the newer checkpoint. But if a start continues from an older checkpoint, it has
    found the newer ones damaged, so the older one is returned.
    """
    if found.by != BY_START and known is not None and known.step > found.step:
        return known
    return found


def continued(step: int, name: str) -> str:
    """Return the line: all ranks have read the checkpoint folder `name`, and continue from it."""
    return f"continuing after step {step} from {name}"


def copied(step: int, sent_bytes: int, seconds: float) -> str:
    """Return the line: the checkpoint is complete in the mirror.

    The process of the mirror puts `[mirror]` before it.
    """
    return f"step {step}: {sent_bytes:,} bytes copied in {seconds:.1f} s"

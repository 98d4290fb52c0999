"""One line of a table of measurements."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """What was measured, and the bar for it; `met` is None if the row is only for information."""

    what: str
    bar: str
    measured: str
    met: bool | None

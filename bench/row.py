"""One line of the table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """What was measured, against which bar; `met` is None where it is only for information."""

    what: str
    bar: str
    measured: str
    met: bool | None

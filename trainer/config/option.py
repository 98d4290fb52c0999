"""Declares one option of a run: its default, its meaning and its limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

# The pattern of a name that becomes a directory below <data_root>.
NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"


def option(
    default: Any,
    doc: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    choices: Sequence[str] | None = None,
    pattern: str | None = None,
    likely: Sequence[str] = (),
) -> Any:
    """Make a dataclass field whose metadata hold its explanation, limits and allowed values.

    `likely` lists values of which a wrong value may be a misspelling, for an option that allows
    other values too.
    """
    limits = {"at_least": at_least, "above": above, "at_most": at_most, "below": below}
    metadata = {
        "doc": doc,
        "limits": limits,
        "choices": choices,
        "pattern": pattern,
        "likely": likely,
    }
    return field(default=default, metadata=metadata)

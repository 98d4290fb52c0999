"""Declares one option of a run: its default, its meaning and its limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

# The pattern of a name that becomes a directory below <data_root>.
NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"


@dataclass(frozen=True)
class Form:
    """The form of a text.

    Args:
        pattern: A regular expression that matches the whole text.
        words: What it matches, in words. Messages show only these.
    """

    pattern: str
    words: str


ANY_LINE = Form(r".+", "a text of one line")
NAME = Form(
    NAME_PATTERN,
    "a name of at most 63 letters, digits, '.', '_' and '-' that begins with a letter or a digit",
)
SHA256 = Form(r"[0-9a-f]{64}", "a sha256 of 64 digits in lower-case hexadecimal")
URL = Form(r"https?://\S+", "an http(s) address")


def option(
    default: Any,
    doc: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    choices: Sequence[str] | None = None,
    form: Form | None = None,
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
        "form": form,
        "likely": likely,
    }
    return field(default=default, metadata=metadata)

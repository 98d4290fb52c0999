"""Checks a value against the limits of an option, and describes what is allowed. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from trainer.config.problem import either

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_SIGNS = {"at_least": "at least", "above": "above", "at_most": "at most", "below": "below"}


def fault(value: Any, wanted: type[Any], metadata: Mapping[str, Any]) -> str:
    """Say why an option cannot have this value. The result is empty if it can.

    Args:
        value: The value that is set.
        wanted: The type of the option: int, float, bool or str.
        metadata: The metadata of the field that `option` made.
    """
    if not isinstance(value, wanted) or (wanted is not bool and isinstance(value, bool)):
        return f"it is not {_WORDS[wanted]}"
    choices, form, limits = metadata["choices"], metadata["form"], metadata["limits"]
    if choices is not None:
        return "" if value in choices else "there is no such choice"
    if form is not None:
        return "" if re.fullmatch(form.pattern, value) else f"it is not {form.words}"
    if isinstance(value, float) and not math.isfinite(value):
        return "it is not a finite number"
    at_least, above = limits["at_least"], limits["above"]
    if (at_least is not None and value < at_least) or (above is not None and value <= above):
        return "it is too small"
    at_most, below = limits["at_most"], limits["below"]
    if (at_most is not None and value > at_most) or (below is not None and value >= below):
        return "it is too large"
    return ""


def remedy(wanted: type[Any], metadata: Mapping[str, Any]) -> str:
    """Describe the allowed values in a sentence such as `Set a whole number that is at least 1`."""
    if metadata["choices"] is not None:
        return f"Set {either(metadata['choices'])}"
    limits = [
        f"{_SIGNS[kind]} {limit:g}" if limit < 1e6 else f"{_SIGNS[kind]} {limit}"
        for kind, limit in metadata["limits"].items()
        if limit is not None
    ]
    text = f"Set {_WORDS[wanted]}"
    if limits:
        text += f" that is {' and '.join(limits)}"
    return text if metadata["form"] is None else f"Set {metadata['form'].words}"

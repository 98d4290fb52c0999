"""Finds the known name that a user may have meant by another one. All functions are pure."""

import difflib
from collections.abc import Collection, Iterable


def nearest(text: str, known: Iterable[str]) -> str:
    """Return the most similar known name, without regard to case; empty if none is similar."""
    names = {name.lower(): name for name in known}
    close = difflib.get_close_matches(text.lower(), names, n=1)
    return names[close[0]] if close else ""


def is_misspelt(name: str, given: Iterable[str], known: Collection[str]) -> bool:
    """Whether one of the given names is unknown, and most similar to `name`.

    The message about that one says what was meant, so none is needed that `name` is missing.
    """
    return any(nearest(other, known) == name for other in given if other not in known)


def did_you_mean(text: object, known: Iterable[str]) -> str:
    """Return ` (did you mean NAME?)` with the most similar known name; empty if none is similar."""
    close = nearest(text, known) if isinstance(text, str) else ""
    return f" (did you mean {close}?)" if close else ""

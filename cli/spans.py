"""Writes a span of time in words. This module is pure."""


def span_of_seconds(exact: float) -> str:
    """Return a text such as `12 s`, `7 min`, `3 h` or `2 d`.

    A negative span, which clocks that differ may give, is `0 s`.
    """
    seconds = max(0, round(exact))
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"

"""A span of time in words. Pure."""


def span_of_seconds(exact: float) -> str:
    """`12 s`, `7 min`, `3 h`, `2 d`; `0 s` for less than nothing, as of clocks that differ."""
    seconds = max(0, round(exact))
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"

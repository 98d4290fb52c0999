"""Parses the option --since."""

import re
from datetime import datetime, timedelta

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_since(text: str, now: datetime) -> datetime:
    """Return the time from which lines are wanted.

    Args:
        text: an age such as 90s, 10m, 2h or 3d, or a time such as 2026-11-22T09:00. Without a time
            zone, the time is in the local zone of this machine on that day.
        now: the current time, with a time zone.

    Raises:
        ValueError: the text is neither an age nor a time.
    """
    age = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    try:
        if age:
            return now - timedelta(**{UNITS[age[2]]: float(age[1])})
        at = datetime.fromisoformat(text)
        return at if at.tzinfo else at.astimezone()
    except (OverflowError, ValueError):
        raise ValueError(
            f"--since: {text!r} cannot be used: it is no age and no time. "
            "Give an age such as 90s, 10m, 2h or 3d, or a time such as 2026-11-22T09:00."
        ) from None

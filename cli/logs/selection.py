"""Selects lines by rank, time and text. This module is pure."""

import re
from dataclasses import dataclass

from cli.logs.line import Line
from infra.kube.say import first_of

MOST_NAMED = 5


@dataclass(frozen=True)
class Selection:
    """The options that select lines.

    Args:
        ranks: global ranks; empty for all ranks and the nodes' own lines.
        since: the time of the oldest line, in seconds since the epoch; 0.0 for all lines.
        grep: a pattern that the text has to contain; None for all lines.
    """

    ranks: frozenset[int] = frozenset()
    since: float = 0.0
    grep: re.Pattern[str] | None = None

    def has(self, line: Line) -> bool:
        """Whether the line is wanted."""
        if line.at < self.since or (self.ranks and line.rank not in self.ranks):
            return False
        return self.grep is None or self.grep.search(line.text) is not None


def parse_ranks(text: str) -> frozenset[int]:
    """Parse a list of ranks such as `0,2` or `0-3,6`; an empty text gives an empty set.

    Raises:
        ValueError: it is no such list.
    """
    ranks: set[int] = set()
    for word in text.split(",") if text else []:
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", word)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first or last - first > 100_000:
            raise ValueError(
                f"--rank: {text!r} cannot be used: {word!r} is no rank and no range of ranks. "
                "Give global ranks such as 0,2 or 0-3."
            )
        ranks.update(range(first, last + 1))
    return frozenset(ranks)


def no_such_ranks(ranks: frozenset[int], world_size: int) -> str:
    """Return a warning about ranks that the run does not have; empty if it has all of them.

    Args:
        ranks: the ranks that the user has named.
        world_size: the number of ranks of the run.
    """
    others = [str(rank) for rank in sorted(ranks) if rank >= world_size]
    if not others:
        return ""
    has = "0" if world_size == 1 else f"0 to {world_size - 1}"
    return (
        f"--rank: the run has no rank {first_of(others, MOST_NAMED)} now but {has}: only lines of "
        "earlier starts can come"
    )


def parse_pattern(text: str) -> re.Pattern[str] | None:
    """Parse the pattern of --grep; an empty text gives None.

    Raises:
        ValueError: it is no regular expression.
    """
    try:
        return re.compile(text) if text else None
    except re.error as error:
        raise ValueError(
            f"--grep: {text!r} cannot be used: it is no regular expression ({error}). "
            r"Put \ before signs such as ( [ * + that are to be found as they are."
        ) from None

"""Parses lines of a run's log: the records on the volume, and the lines of the API server.

This module is pure.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from cli.logs.volume_program import RECORD, TIME_FORMAT

SEARCHED_CHARACTERS = 8192


@dataclass(frozen=True)
class Line:
    """A line of the log.

    Args:
        at: when it was written, in seconds since the epoch.
        node: the rank of the node.
        rank: the global rank of the process. It is None for the node's own lines, and for lines
            from the API server, which does not know which process wrote them.
        text: the text of the line, without the newline.
    """

    at: float
    node: int
    rank: int | None
    text: str


def parse_record(record: bytes) -> Line | None:
    """Parse a record on the volume, which trainer/launch/run_log.py wrote; None if it is none."""
    match = RECORD.fullmatch(record)
    if match is None:
        return None
    try:
        at = datetime.strptime(match[1].decode(), TIME_FORMAT).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
    rank = None if match[3] == b"-" else int(match[3])
    return Line(at, int(match[2]), rank, match[4].decode(errors="replace"))


def parse_api_line(line: bytes, node: int) -> Line | None:
    """Parse a line of a pod's log as the API server sends it; None if it has no time."""
    stamp, _, text = line.partition(b" ")
    try:
        at = datetime.fromisoformat(stamp.decode())
    except ValueError:
        return None
    return Line(at.timestamp(), node, None, text.decode(errors="replace"))


def without_middle(text: str) -> str:
    """Return the text; of one of more than SEARCHED_CHARACTERS only the beginning and the end.

    A line may have 1 MiB, and a pattern such as `NCCL WARN .*No space left` looks at all that
    follows each `NCCL WARN`, so its time may grow with the square of the line's length.
    """
    half = SEARCHED_CHARACTERS // 2
    return text if len(text) <= SEARCHED_CHARACTERS else f"{text[:half]} [...] {text[-half:]}"


def api_time(at: float) -> str:
    """Format a time for a query of the API server: in whole seconds, rounded down."""
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def record_time(at: float) -> str:
    """Format a time as in the records on the volume."""
    return datetime.fromtimestamp(at, UTC).strftime(TIME_FORMAT)

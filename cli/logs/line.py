"""A line of a run's log, as the volume keeps it and as the API server gives it. Pure."""

from dataclasses import dataclass
from datetime import UTC, datetime

from cli.logs.volume_program import RECORD, TIME_FORMAT


@dataclass(frozen=True)
class Line:
    """One line.

    Args:
        at: when it was written, as time.time() has it.
        node: the rank of the node.
        rank: the global rank of the process; None for the node's own lines, and where only the
            API server has the line, which does not say who wrote it.
        text: without the newline.
    """

    at: float
    node: int
    rank: int | None
    text: str


def parse_record(record: bytes) -> Line | None:
    """A line of a file on the volume (trainer/launch/run_log.py); None where it is none."""
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
    """A line of a pod's log with its time, as the API server gives it; None where it has none."""
    stamp, _, text = line.partition(b" ")
    try:
        at = datetime.fromisoformat(stamp.decode())
    except ValueError:
        return None
    return Line(at.timestamp(), node, None, text.decode(errors="replace"))


def api_time(at: float) -> str:
    """The time as the API server takes it: whole seconds, rounded down."""
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def record_time(at: float) -> str:
    """The time as the records have it."""
    return datetime.fromtimestamp(at, UTC).strftime(TIME_FORMAT)

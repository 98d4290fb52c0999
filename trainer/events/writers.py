"""Makes the event logs of those who write events: the entrypoint of each node, and rank 0."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trainer.events.event import Name, event_file
from trainer.events.log import HEARTBEAT_SECONDS, EventLog
from trainer.events.pod_begin import pod_begin

_LONGEST_REASON = 200  # an event is a short line
_LEFT_OUT = " ... "


def entrypoint_events(run_dir: Path, node: int, say: Callable[[str], None]) -> EventLog:
    """Return the entrypoint's log for its node's file; it writes `alive` events too."""
    return EventLog(event_file(run_dir, node), say, HEARTBEAT_SECONDS)


def rank_events(run_dir: Path, rank: int, ranks: int, has_entrypoint: bool) -> EventLog:
    """Return the event log of a rank that has imported everything; only rank 0 writes events.

    If rank 0 was started without an entrypoint, by torchrun or by hand, it also writes the events
    `pod_started` and `alive`.
    """
    if rank != 0:
        return EventLog(None, _say)
    events = EventLog(event_file(run_dir, 0), _say, None if has_entrypoint else HEARTBEAT_SECONDS)
    if not has_entrypoint:
        pod_started(events, ranks)
    events.write(Name.IMPORTS_DONE)
    return events


def pod_started(events: EventLog, ranks: int) -> None:
    """Write when pod and process were started, and how many ranks the run has in all."""
    events.write(Name.POD_STARTED, **pod_begin(), gpus=ranks)


def shortened(reason: str) -> str:
    """Return a reason as one line of at most 200 characters, for an event.

    A longer one keeps its begin and its end, which mostly says what is wrong.
    """
    line = " ".join(reason.split())
    if len(line) <= _LONGEST_REASON:
        return line
    kept = _LONGEST_REASON - len(_LEFT_OUT)
    return f"{line[: kept // 2]}{_LEFT_OUT}{line[-(kept - kept // 2) :]}"


def _say(text: str) -> None:
    print(text, flush=True)

"""Settings of runs whose ranks hang, and what their logs and events say about that."""

from __future__ import annotations

from tests.trainer.lab import Lab, wait_for
from trainer.config import RunConfig
from trainer.events.event import Event, Name, event_file, parse_events

# The ranks' own time limits are much longer than the tests.
ENDLESS = {
    "train__max_steps": 1_000_000,
    "train__decay_steps": 200,
    "train__timeout_seconds": 300,
    "train__start_timeout_seconds": 300,
}


def hangs(lab: Lab) -> list[str]:
    """Return the lines of the log of node 0 that report a hang."""
    return [line for line in lab.node_log(0).read_text().splitlines() if "] no step for" in line]


def hang_event(lab: Lab, run: RunConfig) -> Event:
    """Wait until the event of the hang is in the file of node 0, and return it. It must be the only
    one.
    """

    def written() -> list[Event]:
        events, _ = parse_events(event_file(run.run_dir, 0).read_bytes())
        return [event for event in events if event.name == Name.HANG]

    wait_for("the event", lambda: bool(written()), 60, lab)
    (event,) = written()
    return event

"""One clock for the events of all starts of a run, whatever the machines' clocks did. Pure.

Between two events of the same start of a machine the time is what its monotonic clock says, which
nobody sets. From one machine (or start of it) to the next only the clock of day is known, and it is
asked once for each: the lines of two pods that overlap, as where one still ends on a machine that
was cut off, may come in turns. Time never goes backwards.

The entrypoint and rank 0 append to one file, each by a thread that may be late on a busy machine or
a slow volume. So a line may stand behind one of the other process that happened after it. Lines
that share a clock are put in the order of that clock first.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainer.events.event import Event, Name

MICRO = 1_000_000
# A monotonic clock that goes back further than that has begun anew.
_LARGEST_DISORDER_SECONDS = 60.0


def timeline(events: Sequence[Event]) -> list[tuple[int, Event]]:
    """The events in the order of their clock, each with its microseconds since the first one."""
    placed = list[tuple[int, Event]]()
    now, before = 0, None
    # Of each start of a machine: an event, the time of that event, and the newest event.
    anchors = dict[str, tuple[Event, int, Event]]()
    for event in _in_order(events):
        known = anchors.get(event.boot)
        if known is None or not _share_a_clock(known[2], event):
            passed = 0.0 if before is None else event.unix_seconds - before.unix_seconds
            now += max(0, round(passed * MICRO))
            anchors[event.boot] = (event, now, event)
        else:
            anchor, anchor_at, _ = known
            passed = event.monotonic_seconds - anchor.monotonic_seconds
            now = max(now, anchor_at + round(passed * MICRO))
            anchors[event.boot] = (anchor, anchor_at, event)
        placed.append((now, event))
        before = event
    return placed


def _in_order(events: Sequence[Event]) -> list[Event]:
    """Put what shares a clock in the order of that clock.

    Nothing comes before the end of a finished run that was written after it: the account of such a
    run stays as it is.
    """
    ordered, together = list[Event](), list[Event]()
    for event in events:
        if together and not (
            together[-1].name != Name.FINISHED and _share_a_clock(together[-1], event)
        ):
            ordered += sorted(together, key=lambda one: one.monotonic_seconds)
            together = []
        together.append(event)
    return ordered + sorted(together, key=lambda one: one.monotonic_seconds)


def _share_a_clock(one: Event, next_one: Event) -> bool:
    disorder = one.monotonic_seconds - next_one.monotonic_seconds
    return one.boot == next_one.boot and disorder < _LARGEST_DISORDER_SECONDS

"""Puts the events of all starts of a run on one clock, even if machines' clocks were set.

Between two events of the same boot of a machine, the time is taken from its monotonic clock, which
cannot be set. From one machine or boot to the next, only the time of day is known. It is used once
for each boot, because the lines of two pods may alternate in the file, for example while one pod
still ends on a machine that was cut off. Time never goes backwards.

The entrypoint and rank 0 append to one file, each from a thread that may be late on a busy machine
or a slow volume. So a line may come after a line of the other process that happened later. Lines
that share a clock are first put in the order of that clock.

This module does no input or output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from trainer.events.event import Event, Name

MICRO = 1_000_000
# If a monotonic clock goes back further than this, it is another clock that has begun anew.
_LARGEST_DISORDER_SECONDS = 60.0


def timeline(events: Iterable[Event]) -> Iterator[tuple[int, Event]]:
    """Return the events in the order of time, each with its microseconds since the first one."""
    now, before = 0, None
    # For each boot of a machine: its first event, the time of that event, and the newest event.
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
        yield now, event
        before = event


def _in_order(events: Iterable[Event]) -> Iterator[Event]:
    """Put events that share a clock in the order of that clock.

    Only the events of the last `_LARGEST_DISORDER_SECONDS` are kept for lines that come late. Lines
    that were written after the end of a finished run are not put before that end, so that the
    account of such a run stays as it is.
    """
    waiting = list[tuple[float, int, Event]]()  # the number orders equal times
    newest: Event | None = None  # of the events that share a clock
    for number, event in enumerate(events):
        if newest is None or newest.name == Name.FINISHED or not _share_a_clock(newest, event):
            yield from (each for *_, each in sorted(waiting))
            waiting.clear()
            newest = event
        elif event.monotonic_seconds >= newest.monotonic_seconds or event.name == Name.FINISHED:
            newest = event
        heappush(waiting, (event.monotonic_seconds, number, event))
        while not _share_a_clock(newest, waiting[0][2]):
            yield heappop(waiting)[2]
    yield from (each for *_, each in sorted(waiting))


def _share_a_clock(newest: Event, event: Event) -> bool:
    disorder = newest.monotonic_seconds - event.monotonic_seconds
    return newest.boot == event.boot and disorder < _LARGEST_DISORDER_SECONDS

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

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from trainer.events.event import Event, Name

MICRO = 1_000_000
# A monotonic clock that goes back further than that has begun anew.
_LARGEST_DISORDER_SECONDS = 60.0


def timeline(events: Iterable[Event]) -> Iterator[tuple[int, Event]]:
    """The events in the order of their clock, each with its microseconds since the first one."""
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
        yield now, event
        before = event


def _in_order(events: Iterable[Event]) -> Iterator[Event]:
    """Put what shares a clock in the order of that clock.

    Only the events of the last seconds wait for a line that is late. Nothing comes before the end
    of a finished run that was written after it: the account of such a run stays as it is.
    """
    waiting = list[tuple[float, int, Event]]()  # the number is for equal times
    newest: Event | None = None  # of those that share a clock
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

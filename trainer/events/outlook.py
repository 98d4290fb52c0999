"""Reads the events once in advance for what the account of a moment needs from later events.

This module does no input or output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainer.events.event import Event, Name
from trainer.events.median import Median
from trainer.events.states import AFTER
from trainer.events.timeline import MICRO, timeline
from trainer.events.training import Usual

_GO_ON = (Name.POD_STARTED, Name.ROUND_BEGUN)


@dataclass(frozen=True)
class Outlook:
    """What is known only at the end of all events.

    Args:
        usual: What is usual in the run.
        goes_back_to: Item N is for the time after N restorations (events `restored`). It is the
            smallest number of updates to which a later restoration goes back; None if there is no
            later one.
        saved_step: The step of the newest checkpoint.
    """

    usual: Usual
    goes_back_to: tuple[int | None, ...]
    saved_step: int

    @staticmethod
    def of(events: Iterable[Event]) -> Outlook:
        """Return the outlook of all events of node 0, in the order of the file."""
        step, report = Median(), Median()
        restored, saved_step = list[int](), 0
        begin: int | None = None
        for now, event in counted(events):
            if event.name == Name.REPORT and begin is not None and event.values["steps"] > 0:
                waits = event.number("data_seconds") + event.number("save_seconds")
                step.add(max(0.0, now - begin - waits * MICRO) / event.number("steps"))
                report.add(now - begin)
            if event.name in AFTER:
                begin = now
            if event.name == Name.RESTORED:
                restored.append(event.step())
            if event.name in (Name.RESTORED, Name.SAVED):
                saved_step = event.step()
        fewest: list[int | None] = [None]
        for each in reversed(restored):
            fewest.append(each if fewest[-1] is None else min(each, fewest[-1]))
        return Outlook(Usual(step.value(), report.value()), tuple(reversed(fewest)), saved_step)


def counted(events: Iterable[Event]) -> Iterator[tuple[int, Event]]:
    """Return the events that count, each with its microseconds since the first one.

    After the end of a finished run, events count only once training goes on: a pod starts, or a
    round begins for a program that had ended only on node 0.
    """
    is_finished = False
    for now, event in timeline(events):
        is_finished = is_finished and event.name not in _GO_ON
        if not is_finished:
            yield now, event
        is_finished = is_finished or event.name == Name.FINISHED

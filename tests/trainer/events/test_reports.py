"""What rank 0 reports about its steps, and how often."""

from __future__ import annotations

from typing import Any

import pytest

from trainer.events.event import Name
from trainer.events.log import EventLog
from trainer.events.reports import Reports


class Recorder(EventLog):
    """A stand-in for the event log that keeps the events instead of writing them."""

    def __init__(self) -> None:
        super().__init__(None, print)
        self.written = list[tuple[str, dict[str, Any]]]()

    def write(self, name: Name, **values: Any) -> None:
        self.written.append((name.value, values))


def test_reports_wait_until_their_time_has_come_and_then_sum_up() -> None:
    """Reports wait until their time has come, or something else is noted, and then give sums of all
    steps since the last one.
    """
    recorder = Recorder()
    reports = Reports(recorder, least_seconds=1e9)
    reports.first_step(11)
    reports.stepped(12, step_seconds=2.0, longest_seconds=2.0, data_seconds=0.5)
    reports.waited_for_save(0.25)
    reports.stepped(15, step_seconds=1.5, longest_seconds=3.0, data_seconds=0.1)
    assert recorder.written == [("first_step", {"step": 11})]
    reports.held_up(Name.SAVING)
    report = {"step": 15, "steps": 4, "data_seconds": 0.8, "save_seconds": 0.25}
    assert recorder.written[1:] == [("report", {**report, "longest_seconds": 3.0}), ("saving", {})]
    reports.resumed()
    reports.resumed()
    assert recorder.written[3:] == [("resumed", {})]


def test_each_report_begins_anew() -> None:
    """The sums of each report begin at zero, and the first step is in none."""
    recorder = Recorder()
    reports = Reports(recorder, least_seconds=0)
    reports.first_step(1)
    # The first step is no report.
    reports.stepped(1, step_seconds=9.0, longest_seconds=0.0, data_seconds=0.5)
    reports.stepped(2, step_seconds=2.0, longest_seconds=2.0, data_seconds=0.5)
    reports.stepped(3, step_seconds=1.0, longest_seconds=1.0, data_seconds=0.0)
    values = [values for name, values in recorder.written if name == "report"]
    assert [v["steps"] for v in values] == [1, 1]
    assert [v["data_seconds"] for v in values] == [0.5, 0.0]
    assert [v["longest_seconds"] for v in values] == [2.0, 1.0]


def test_each_checkpoint_is_noted_once() -> None:
    """A checkpoint is noted once, however often it is told, and step 0 is not noted."""
    recorder = Recorder()
    reports = Reports(recorder)
    for step in (0, 0, 10, 10, 20):
        reports.saved(step)
    assert recorder.written == [("saved", {"step": 10}), ("saved", {"step": 20})]


def test_what_stands_still_between_two_calls_is_the_longest_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Time in which the loop stands still between two calls, as for a log on a volume that does not
    answer, counts as the longest step. Waits for a save do not count there. A wait before the first
    step is a part of the start, and in no report.
    """
    now = [100.0]
    monkeypatch.setattr("trainer.events.reports.time.monotonic", lambda: now[0])
    recorder = Recorder()
    reports = Reports(recorder, least_seconds=0)
    reports.waited_for_save(7.0)
    reports.first_step(1)
    now[0] += 10 * 0.5 + 4.0 + 20.0
    reports.waited_for_save(4.0)
    reports.stepped(11, step_seconds=0.5, longest_seconds=0.75, data_seconds=0.0)
    now[0] += 10 * 0.5 + 6.0
    reports.stepped(21, step_seconds=0.5, longest_seconds=0.75, data_seconds=0.0)
    reports.held_up(Name.SAVING)
    now[0] += 300.0  # has a kind of its own
    reports.resumed()
    now[0] += 10 * 0.5
    reports.stepped(31, step_seconds=0.5, longest_seconds=0.75, data_seconds=0.0)
    values = [values for name, values in recorder.written if name == "report"]
    assert [v["longest_seconds"] for v in values] == [20.0, 6.0, 0.75]
    assert [v["save_seconds"] for v in values] == [4.0, 0.0, 0.0]

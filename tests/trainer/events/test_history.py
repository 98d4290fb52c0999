"""Accounts of random runs have no gap and no overlap, and are the truth where it is known."""

from __future__ import annotations

from collections import Counter
from math import isclose
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.events.stories import BEGIN_UNIX_MS, Story
from trainer.events.account import account_of
from trainer.events.event import MAY_BE_NUMBERS, NUMBERS, Event, Name, parse_events
from trainer.events.history import read_history
from trainer.events.outlook import Outlook
from trainer.events.show import as_text
from trainer.events.span import Kind, Phase, Span
from trainer.events.timeline import MICRO

SHORT_MS = st.integers(0, 900)
LONG_MS = st.integers(0, 50_000)
numbers = st.one_of(st.integers(0, 10**6), st.floats(0, 1e6))


@st.composite
def any_event(draw: st.DrawFn) -> Event:
    """Draw an event that no trainer would write in this order, by clocks that jump."""
    name = draw(st.sampled_from([*Name, "of a later version"]))
    may_be = draw(st.lists(st.sampled_from(MAY_BE_NUMBERS.get(name, ("of no use",))), unique=True))
    values: dict[str, Any] = {key: draw(numbers) for key in (*NUMBERS.get(name, ()), *may_be)}
    values |= draw(st.sampled_from([{}, {"pod": "one"}, {"pod": "other"}]))
    unix, monotonic = draw(st.floats(0, 1e9)), draw(st.floats(0, 1e5))
    return Event(name, unix, monotonic, draw(st.sampled_from("ab")), values)


def spans_of(events: list[Event]) -> list[Span]:
    """Return the spans of time that are read from these events."""
    spans = list[Span]()
    read_history(events, Outlook.of(events), spans.append)
    return spans


def assert_is_a_partition(spans: list[Span]) -> None:
    """Assert that the spans follow each other from 0 on without gap or overlap, and none is
    empty.
    """
    assert all(span.length > 0 for span in spans)
    assert [span.begin for span in spans] == [0, *(span.end for span in spans)][: len(spans)]


@given(st.lists(any_event(), max_size=30))
def test_spans_of_any_events_have_no_gap(events: list[Event]) -> None:
    """Whatever the events are, their spans have no gap, and the account adds up to the wall
    time.
    """
    spans = spans_of(events)
    assert_is_a_partition(spans)
    account = account_of(events)
    assert isclose(sum(account.seconds.values()), account.wall_seconds)
    phased = sum(span.length for span in spans if span.phase is not None)
    assert isclose(sum(start.seconds for start in account.starts), phased / MICRO)
    assert 0 <= account.goodput <= 1
    assert account.unsaved_seconds >= 0


def test_time_without_updates_after_the_newest_checkpoint_is_unsaved() -> None:
    """Time in which no update was made counts as a whole as made again when it lies after the
    checkpoint. The number of its updates is zero, by which the account must not divide.
    """
    span = Span(0, 1_000_000, Kind.PRODUCTIVE, None, 1, 0, first=7, last=7)
    assert span.repeated_after(7) == [span]
    assert span.repeated_after(6) == [span._replace(is_repeated=True)]


def test_effort_grows_with_the_number_of_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The effort of an account grows no faster than the number of starts. A run that starts again
    and again from one checkpoint has thousands of them in a week.
    """

    def looks(starts: int) -> int:
        told = Story()
        for _ in range(starts):
            told.starts(1000, 100, 100, 500)
            told.trains(3, 200)
            told.rank_dies(100, 1000)
        asked: Counter[Span] = Counter()
        with monkeypatch.context() as patch:
            own = Span.repeated_after

            def counted(span: Span, step: int) -> list[Span]:
                asked[span] += 1
                return own(span, step)

            patch.setattr(Span, "repeated_after", counted)
            account = account_of(*parse_events(told.content))
        assert account.lost_steps == 4 * (starts - 1)
        return asked.total()

    assert looks(80) <= 2.5 * looks(40)


@st.composite
def story(draw: st.DrawFn) -> Story:
    """Draw a run with kills at any point, stops, other machines, torn lines and a clock that is
    set.
    """
    told = Story()
    is_moving = draw(st.booleans())
    for number in range(draw(st.integers(1, 5))):
        if number:
            told.is_away(draw(LONG_MS))
            if draw(st.booleans()):
                told.tears(draw(st.integers(0, 60)))
            if is_moving and draw(st.booleans()):
                told.moves(f"machine {number}")
        if draw(st.booleans()):
            told.comes(f"pod {number}", draw(LONG_MS), draw(SHORT_MS))
        told.starts(draw(LONG_MS), draw(LONG_MS), draw(LONG_MS), draw(LONG_MS))
        for _ in range(draw(st.integers(0, 6))):
            if not is_moving:  # where the clock of day is all there is, it has to be right
                told.clock_error_ms = draw(st.integers(-100_000, 100_000))
            told.trains(draw(st.integers(1, 9)), draw(st.integers(50, 900)), draw(SHORT_MS))
            happens = draw(st.sampled_from(["", "", "save", "evaluate", "rank dies"]))
            if happens == "save":
                told.saves(draw(LONG_MS))
            elif happens == "evaluate":
                told.evaluates(draw(LONG_MS))
            elif happens == "rank dies":
                told.lives_on(draw(SHORT_MS))
                told.rank_dies(draw(LONG_MS), draw(SHORT_MS))
                told.round(draw(LONG_MS), draw(LONG_MS), draw(LONG_MS), draw(LONG_MS))
        if draw(st.booleans()):
            told.is_stopped(draw(LONG_MS), draw(SHORT_MS))
        else:
            told.lives_on(draw(SHORT_MS))
    return told


@given(story())
def test_account_of_a_known_run_is_the_truth(told: Story) -> None:
    """The account of a made-up run has the times that the run was made of."""
    account = account_of(*parse_events(told.content))
    found = {kind: round(seconds * 1000) for kind, seconds in account.seconds.items()}
    assert found == {kind: told.spent[kind] for kind in Kind}
    assert round(account.wall_seconds * 1000) == sum(told.spent.values())
    assert round(account.paused_seconds * 1000) == told.paused_ms
    assert account.saved_step == told.saved


@given(story(), st.data())
def test_account_does_not_depend_on_which_writer_was_late(told: Story, data: st.DataObject) -> None:
    """The account is the same when two lines of one machine are in the wrong order. The entrypoint
    and rank 0 append to one file, and either may be late on a busy machine.
    """
    events, damaged = parse_events(told.content)
    written, place = list(events), 0
    while place + 1 < len(written):
        first, second = written[place : place + 2]
        late = second.monotonic_seconds - first.monotonic_seconds
        if first.boot == second.boot and 0 < late < 60 and data.draw(st.booleans()):
            written[place : place + 2] = second, first
            place += 1
        place += 1
    assert account_of(written, damaged) == account_of(events, damaged)


def test_pod_whose_first_line_is_late_was_not_there_before() -> None:
    """The time without a pod does not count as training when the new pod's first line comes after
    lines of its rank 0.
    """
    told = Story()
    told.starts(100, 10, 10, 10)
    told.trains(10, 100)
    told.is_away(100)
    told.starts(10, 10, 10, 10)
    told.trains(10, 100)
    events, _ = parse_events(told.content)
    begin = [event.name for event in events].index(Name.POD_STARTED, 1)
    of_the_pod, of_rank_0 = events[begin : begin + 3], events[begin + 3 :]
    assert of_the_pod[-1].name == Name.RANKS_STARTED
    events[begin:] = [*of_rank_0[:2], *of_the_pod, *of_rank_0[2:]]
    account = account_of(events)
    assert account.seconds[Kind.DOWN] == 0.1
    assert account.starts[1].phases[Phase.DETECT] == 0.1


@given(story(), st.data())
def test_file_cut_at_any_byte_loses_one_line(told: Story, data: st.DataObject) -> None:
    """A file that was cut anywhere, as by a kill in the middle of a write, keeps all whole lines
    and gives an account without gaps.
    """
    cut = data.draw(st.integers(0, len(told.content)))
    whole, _ = parse_events(told.content)
    events, damaged = parse_events(told.content[:cut])
    complete = told.content[:cut].count(b"}")
    assert events == whole[: len(events)]
    assert len(events) == complete
    assert damaged <= told.content[:cut].count(b"\n") - complete
    assert_is_a_partition(spans_of(events))


@given(story(), st.lists(any_event(), max_size=8))
def test_account_is_frozen_once_the_run_is_finished(told: Story, later: list[Event]) -> None:
    """Events after the end of a run do not change its account, unless a pod or a round begins."""
    told.note(Name.EVALUATING)
    told.finishes()
    events, _ = parse_events(told.content)
    later = [each for each in later if each.name not in (Name.POD_STARTED, Name.ROUND_BEGUN)]
    assert account_of([*events, *later]) == account_of(events)
    assert account_of(events).is_finished


def test_pause_after_a_finished_run_is_not_counted() -> None:
    """A run that goes on after its end, because `train.max_steps` was raised, is counted on. The
    time between costs nothing and is no part of its account, but is shown apart. Later waits count.
    """
    told = Story()
    told.starts(1000, 100, 100, 100)
    told.trains(10, 100)
    told.saves(50)
    told.finishes()
    told.is_away(60_000)
    told.comes("other", 2000, 500)
    told.starts(1000, 100, 100, 100)
    told.trains(5, 100)
    told.is_stopped(50, 20)
    told.is_away(7000)
    told.starts(1000, 100, 100, 100)
    account = account_of(*parse_events(told.content))
    assert not account.is_finished
    assert account.paused_seconds == 60
    assert account.seconds[Kind.DOWN] == 7
    assert account.seconds[Kind.IMAGE] == 2
    assert isclose(account.wall_seconds, told.now_ms / 1000 - 60)
    assert isclose(sum(account.gpu_seconds.values()), 2 * account.wall_seconds)
    assert account.starts[1].phases[Phase.DETECT] < 1
    assert "60.0 s are not counted, in which the run was finished" in as_text(account, None)


def test_program_that_has_ended_on_node_0_alone_counts_on() -> None:
    """A program that has ended on node 0 and then trains on in the same pod, because another node
    has failed, is counted on.
    """
    told = Story()
    told.starts(1000, 100, 100, 100)
    told.trains(10, 100)
    told.finishes()
    told.note(Name.ROUND_ENDED, how="done", reason="the program has ended with exit code 0")
    told.note(Name.GATHERING)
    told.spend(Kind.RENDEZVOUS, 3000)
    told.round(1000, 100, 100, 100)
    told.trains(50, 100)
    account = account_of(*parse_events(told.content))
    assert not account.is_finished
    assert account.wall_seconds == told.now_ms / 1000
    assert account.seconds[Kind.PRODUCTIVE] == told.spent[Kind.PRODUCTIVE] / 1000
    assert account.seconds[Kind.RENDEZVOUS] == told.spent[Kind.RENDEZVOUS] / 1000
    assert len(account.starts) == 2


def test_pod_that_comes_counts_as_image_and_container_from_the_first_one_on() -> None:
    """The time in which a pod pulls its image and makes its container counts as such, for the first
    pod and for each later one.
    """
    told = Story()
    told.comes("one", 4000, 500)
    told.starts(1000, 100, 100, 100)
    told.trains(10, 100)
    told.is_away(60_000)
    told.comes("other", 90_000, 700)
    told.starts(1000, 100, 100, 100)
    account = account_of(*parse_events(told.content))
    assert account.seconds[Kind.DOWN] == 60
    assert account.seconds[Kind.IMAGE] == 94
    assert account.seconds[Kind.CONTAINER] == 1.2
    assert account.begin_unix_seconds == BEGIN_UNIX_MS / 1000
    assert [start.phases[Phase.POD] for start in account.starts] == [4.5, 90.7]
    held = sum(account.gpu_seconds.values())
    assert isclose(held, 2 * account.wall_seconds)  # from the first pod on


def test_container_that_is_started_again_in_its_pod_pulls_no_image() -> None:
    """A container that is started again in its pod pulls no image. The wait before Kubernetes tries
    again counts as time without a pod.
    """
    told = Story()
    told.comes("one", 4000, 500)
    told.starts(1000, 100, 100, 100)
    told.trains(10, 100)
    told.is_away(30_000)
    told.spend(Kind.CONTAINER, 300)
    since_the_volumes = (told.now_ms - 300) / 1000
    told.pod = {"pod": "one", "image_seconds": since_the_volumes, "container_seconds": 0.3}
    told.starts(1000, 100, 100, 100)
    account = account_of(*parse_events(told.content))
    assert account.seconds[Kind.DOWN] == 30
    assert account.seconds[Kind.IMAGE] == 4
    assert account.seconds[Kind.CONTAINER] == 0.8


def test_pod_that_comes_while_the_old_one_still_ends_counts_from_its_end_on() -> None:
    """The image time of a new pod counts only from the end of the old pod on, and there is no time
    without a pod.
    """
    told = Story()
    told.starts(1000, 100, 100, 100)
    told.trains(10, 100)
    told.spend(Kind.IMAGE, 2000)
    told.pod = {"pod": "other", "image_seconds": 2.5, "container_seconds": 0}
    told.starts(1000, 100, 100, 100)
    account = account_of(*parse_events(told.content))
    assert account.seconds[Kind.IMAGE] == 2
    assert account.seconds[Kind.DOWN] == 0


def test_two_pods_at_once_count_once() -> None:
    """Two pods at once are not counted twice. One still ends, on a machine whose clock is 30 s
    ahead, while its successor trains.
    """
    told = Story(clock_error_ms=30_000)
    told.starts(1000, 100, 100, 100)
    told.trains(10, 100)
    ending = (told.boot, told.boot_ms, told.clock_error_ms)
    told.moves("second")
    told.clock_error_ms = 0
    told.starts(1000, 100, 100, 100)
    training = (told.boot, told.boot_ms, told.clock_error_ms)
    for _ in range(20):
        told.trains(10, 200)
        told.boot, told.boot_ms, told.clock_error_ms = ending
        told.note(Name.ALIVE)
        told.boot, told.boot_ms, told.clock_error_ms = training
    told.finishes()
    account = account_of(*parse_events(told.content))
    assert abs(account.wall_seconds - told.now_ms / 1000) <= 30


def hanging(*, reports: int) -> Story:
    """Return a run that has made this many reports, one every 2 s."""
    told = Story()
    told.starts(1000, 100, 100, 100)
    for _ in range(reports):
        told.trains(10, 200)
    return told


def test_silence_before_a_kill_is_a_hang_after_the_usual_time() -> None:
    """Silence before a kill counts as a hang, except for the usual time of a report. A report comes
    every 2 s, so of 40 s of silence 2 s may have been steps.
    """
    told = hanging(reports=4)
    told.now_ms += 40_000
    told.note(Name.FAILING)
    account = account_of(*parse_events(told.content))
    assert account.seconds[Kind.HANG] == 38
    assert account.seconds[Kind.PRODUCTIVE] == 10


def test_one_long_step_in_a_report_is_a_hang() -> None:
    """A step that is much longer than usual counts as a hang, except for its usual time."""
    told = hanging(reports=4)
    told.now_ms += 9 * 200 + 30_000
    values = {"data_seconds": 0.0, "save_seconds": 0.0, "longest_seconds": 30.0}
    told.note(Name.REPORT, step=told.step + 10, steps=10, **values)
    account = account_of(*parse_events(told.content))
    assert account.seconds[Kind.HANG] == 29.8
    assert account.seconds[Kind.PRODUCTIVE] == 10


def test_long_wait_for_data_is_no_hang() -> None:
    """A long step that has waited for data counts as such a wait, and not as a hang."""
    told = hanging(reports=4)
    told.now_ms += 10 * 200 + 30_000
    values = {"data_seconds": 30.0, "save_seconds": 0.0, "longest_seconds": 30.2}
    told.note(Name.REPORT, step=told.step + 10, steps=10, **values)
    account = account_of(*parse_events(told.content))
    assert account.seconds[Kind.HANG] == 0
    assert account.seconds[Kind.DATA] == 30.1
    assert account.seconds[Kind.PRODUCTIVE] == 10


def test_start_from_an_older_checkpoint_loses_more() -> None:
    """A start from an older checkpoint, because the newest one is damaged, counts steps as lost
    that an earlier start had kept.
    """
    told = Story()
    told.starts(0, 0, 0, 0)
    for saved in (10, 20, 10):
        told.trains(9, 100)
        told.saved = saved
        told.rank_dies(0, 0)
        told.round(0, 0, 0, 0)
    told.trains(9, 100)
    account = account_of(*parse_events(told.content))
    assert account.lost_steps == 1 + 19
    assert account.seconds[Kind.LOST] == told.spent[Kind.LOST] / 1000 == 1.8
    assert account.seconds[Kind.PRODUCTIVE] == told.spent[Kind.PRODUCTIVE] / 1000 == 1.8


def test_steps_that_were_saved_before_their_report_are_not_lost() -> None:
    """A kill may come after a checkpoint, and before the steps that are in it are reported. The
    next start continues after these steps, and makes none of the reported ones again.
    """
    told = Story()
    told.starts(1000, 100, 100, 500)
    told.trains(3, 200)
    told.lives_on(400)
    told.saved = told.step + 2
    told.note(Name.SAVED, step=told.saved)
    told.rank_dies(100, 1000)
    told.round(1000, 100, 100, 500)
    account = account_of(*parse_events(told.content))
    assert (account.lost_steps, account.step) == (0, 7)


def test_part_of_a_report_is_lost_where_the_checkpoint_lies_inside_it() -> None:
    """If the checkpoint lies inside a report, only the steps after it count as lost."""
    told = Story()
    told.starts(0, 0, 0, 0)
    told.trains(9, 100)
    told.saved = 4  # of steps 2 to 10, 6 are made again
    told.starts(0, 0, 0, 0)
    account = account_of(*parse_events(told.content))
    assert account.seconds[Kind.LOST] == 0.6
    assert account.lost_steps == 6
    assert account.starts[1].step == 4


def test_why_each_start_was_needed_is_kept() -> None:
    """Each start has the reason why it was needed."""
    told = Story()
    told.starts(10, 10, 10, 10)
    told.lives_on(10)
    told.rank_dies(10, 10)
    told.round(10, 10, 10, 10)
    told.lives_on(10)
    told.is_away(10)
    told.starts(10, 10, 10, 10)
    told.is_stopped(10, 10)
    told.is_away(10)
    told.starts(10, 10, 10, 10)
    account = account_of(*parse_events(told.content))
    assert [start.reason for start in account.starts] == [
        "",
        "local rank 0 was killed by SIGKILL",
        "killed: it left no word about its end",
        "asked to stop",
    ]
    assert all(start.has_stepped for start in account.starts)


@settings(max_examples=20)
@given(st.integers(1, 64), st.floats(0, 100))
def test_cost_is_wall_clock_times_price_times_gpus(gpus: int, price: float) -> None:
    """The cost is the wall time times the price times the GPUs, and the kinds of time add
    up to it.
    """
    from trainer.events.cost import cost_of

    told = Story(gpus=gpus)
    told.starts(1000, 100, 100, 100)
    told.trains(10, 200)
    told.lives_on(100)
    told.is_away(9000)
    told.starts(1000, 100, 100, 100)
    told.trains(10, 200)
    account = account_of(*parse_events(told.content))
    cost = cost_of(account, price)
    expected = account.wall_seconds / 3600 * price * gpus
    assert abs(cost.total - expected) <= 1e-9 * (1 + expected)
    assert abs(sum(cost.kinds.values()) - expected) <= 1e-9 * (1 + expected)
    assert cost.per_million_tokens is not None
    assert abs(cost.per_million_tokens - expected / (11 * 100) * 1e6) <= 1e-6 * (1 + expected)

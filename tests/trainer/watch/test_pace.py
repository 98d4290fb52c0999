"""Which rank is called slow, and why, from numbers alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import pytest

from trainer.watch.counters import CpuCounters, delayed_of, pressed_of, throttled_of
from trainer.watch.pace import Pace
from trainer.watch.slow import Cause, Finding, Meeting, Window, slow_network, slow_rank, slow_save

STEPS = 5
CLEAN = Window(
    node=0, data=0.001, compute=0.2, wait=0.02, save=0.0, throttled=0.0, delayed=0.0, pressed=0.0
)


def ranks(count: int = 3, **of_rank: Window) -> list[Window]:
    """Return clean windows of ranks on a node each, except those that are given as `r0=`, `r1=`,
    ...
    """
    return [replace(of_rank.get(f"r{rank}", waiting(of_rank)), node=rank) for rank in range(count)]


def waiting(slow: dict[str, Window]) -> Window:
    """Return what the other ranks measure: the slow rank's time is in their collectives."""
    own = max((window.own for window in slow.values()), default=CLEAN.own)
    return replace(CLEAN, wait=CLEAN.wait + own - CLEAN.own)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"data": 0.1}, Cause.DATA),
        ({"compute": 0.3}, Cause.COMPUTE),
        ({"compute": 0.3, "throttled": 0.09, "delayed": 0.09}, Cause.THROTTLED),
        ({"compute": 0.3, "delayed": 0.08}, Cause.CROWDED),
        ({"compute": 0.28, "data": 0.1, "delayed": 0.15}, Cause.CROWDED),
        ({"compute": 0.3, "delayed": 0.02}, Cause.COMPUTE),
        ({"data": 0.2, "compute": 0.23, "delayed": 0.02}, Cause.DATA),
    ],
)
@pytest.mark.parametrize("count", [2, 3, 16])
def test_the_slow_rank_and_its_cause_are_named(
    changes: dict[str, float], cause: Cause, count: int
) -> None:
    for rank in range(count):
        found = slow_rank(ranks(count, **{f"r{rank}": replace(CLEAN, **changes)}))
        assert found is not None
        assert (found.rank, found.node, found.cause) == (rank, rank, cause)
        assert found.factor >= 1.3


def test_what_all_ranks_share_is_nobodys_fault() -> None:
    """No rank is called slow because of a crowded machine, a quota or a slow store that slows all
    alike.
    """
    crowded = replace(CLEAN, compute=0.8, delayed=0.5, throttled=0.2)
    assert slow_rank([crowded] * 3) is None
    assert slow_rank([replace(CLEAN, data=2.0)] * 3) is None


def test_a_difference_that_costs_the_step_little_is_none() -> None:
    """No rank is called slow if its difference is small beside the whole step, of which here the
    transfer takes most.
    """
    windows = [replace(CLEAN, data=0.0, compute=c, wait=2.0) for c in (0.01, 0.01, 0.1)]
    assert slow_rank(windows) is None


def test_a_rank_whose_writing_holds_up_training_is_named() -> None:
    """A rank whose saves hold up training is named, unless that is seldom or all ranks do
    so alike.
    """
    slow = [CLEAN, replace(CLEAN, save=4.0), replace(CLEAN, save=0.1)]
    found = slow_save([(STEPS, [CLEAN] * 3), (STEPS, slow)])
    assert found is not None
    assert (found.rank, found.cause, found.seconds, found.others_seconds) == (
        1, Cause.CHECKPOINT, 4.0, pytest.approx(0.05))  # fmt: skip
    assert slow_save([(STEPS, [CLEAN] * 3)] * 20 + [(STEPS, slow)]) is None  # seldom enough
    assert slow_save([(STEPS, [replace(CLEAN, save=4.0)] * 3)]) is None  # all alike


def test_passes_and_collectives_that_overlap_name_no_rank() -> None:
    """No rank is called slow where its time in collectives is longer than the step, as with fsdp on
    GPUs, whose collectives run beside the passes. What is left for a rank itself is no time then.
    """
    overlaps = replace(CLEAN, compute=-0.3, wait=0.7)
    assert slow_rank([overlaps, overlaps, replace(overlaps, compute=-0.2, wait=0.6)]) is None


def test_a_slow_network_is_told_from_a_slow_rank() -> None:
    """The network is called slow when no rank comes late, but all wait longer than they used to. It
    is not if one rank comes late or all ranks are on one node.
    """
    slow = [replace(window, wait=0.3) for window in ranks()]
    usual = Meeting.of(ranks())
    found = slow_network(slow, usual)
    assert found is not None
    assert (found.rank, found.cause) == (None, Cause.NETWORK)
    assert slow_network(ranks(r1=replace(CLEAN, compute=0.6)), usual) is None
    assert slow_network([replace(window, node=0) for window in slow], usual) is None


@pytest.mark.parametrize(
    ("usual", "now", "cause"),
    [
        ({}, {"pressed": 0.2}, Cause.CROWDED),
        ({"pressed": 0.1}, {"pressed": 0.26}, Cause.CROWDED),
        ({}, {"pressed": 0.2, "throttled": 0.2}, Cause.THROTTLED),
        # always a little crowded, and then the link gets slow
        ({"pressed": 0.1, "throttled": 0.2}, {"pressed": 0.12, "throttled": 0.2}, Cause.NETWORK),
        ({"pressed": 0.2}, {"pressed": 0.1}, Cause.NETWORK),
    ],
)
def test_transfer_that_gets_no_core_is_no_slow_network(
    usual: dict[str, float], now: dict[str, float], cause: Cause
) -> None:
    """The network is not called slow when a pod waits for a core more than it used to. One pod is
    enough, as the others wait for its transfer.
    """
    pace, windows = Pace(), ranks()
    crowded = [replace(window, wait=0.3) for window in windows]
    windows[1], crowded[1] = replace(windows[1], **usual), replace(crowded[1], **now)
    found = history(pace, (20, windows), (20, crowded), (20, windows))
    assert [(f and (f.rank, f.cause)) for _, f in found] == [(None, cause), None]


def history(pace: Pace, *parts: tuple[int, Sequence[Window]]) -> list[tuple[int, Finding | None]]:
    """Return each change of the finding with the number of windows that it took since its part
    began.
    """
    found = list[tuple[int, Finding | None]]()
    for count, windows in parts:
        for number in range(1, count + 1):
            if pace.take(STEPS, windows):
                found.append((number, pace.finding))
    return found


def test_a_finding_is_told_once_and_its_end_once() -> None:
    data, compute = replace(CLEAN, data=0.3), replace(CLEAN, compute=0.6)
    found = history(
        Pace(), (20, ranks()), (20, ranks(r1=data)), (20, ranks(r1=compute)), (20, ranks())
    )
    assert [(f and (f.rank, f.cause)) for _, f in found] == [
        (1, Cause.DATA), (1, Cause.COMPUTE), None]  # fmt: skip
    assert max(number for number, _ in found) * STEPS <= 15


@pytest.mark.parametrize("phase", range(4))
def test_a_rank_that_is_1_3_times_slower_is_found_within_20_steps(phase: int) -> None:
    """A rank that gets 1.3 times as slow is found within 20 steps, wherever in a window it begins:
    `phase` of the window's 5 steps are still fast.
    """
    slow = ranks(r2=replace(CLEAN, compute=CLEAN.compute * 1.32))
    pace = Pace()
    history(pace, (20, ranks()))
    if phase < 3:  # the median of the window is slow
        pace.take(STEPS, slow)
    else:
        pace.take(STEPS, ranks())
    ((windows, found),) = history(pace, (10, slow))
    assert found is not None
    assert found.rank == 2
    assert STEPS - phase + windows * STEPS <= 20


def test_one_hiccup_is_no_finding() -> None:
    """A single window in which one rank takes ten times as long is no finding, even if it happens
    now and then.
    """
    pace, slow = Pace(), ranks(r0=replace(CLEAN, compute=2.0))
    for _ in range(10):
        assert not history(pace, (1, slow), (5, ranks()))


def test_10000_clean_steps_raise_no_false_alarm() -> None:
    """10,000 clean steps give no finding, for steps of 20 ms to 2 s whose lengths vary by a tenth
    (standard deviation).
    """
    draw = random.Random("clean")
    for seconds in (0.02, 0.2, 2.0):
        pace = Pace()
        for _ in range(10_000 // STEPS):
            windows = [
                replace(
                    CLEAN,
                    node=rank,
                    data=draw.expovariate(50 / seconds),
                    compute=median(seconds * draw.gauss(1.0, 0.1) for _ in range(STEPS)),
                    wait=seconds * draw.uniform(0.05, 0.15),
                    delayed=draw.expovariate(50 / seconds),
                )
                for rank in range(3)
            ]
            assert not pace.take(STEPS, windows), pace.finding


def test_a_saves_finding_takes_two_saves_and_goes_with_a_fast_one() -> None:
    """A slow save is a finding only at the second time, and a fast save ends it."""
    pace = Pace()
    slow = [CLEAN, replace(CLEAN, save=3.0), CLEAN]
    fast = [replace(CLEAN, save=0.01)] * 3
    found = history(pace, (1, slow), (3, [CLEAN] * 3), (1, slow), (3, [CLEAN] * 3), (1, slow))
    assert [f and (f.rank, f.cause) for _, f in found] == [(1, Cause.CHECKPOINT)]
    assert history(pace, *[(3, [CLEAN] * 3), (1, fast)] * 2) == [(1, None)]


def test_a_saves_finding_goes_when_no_save_holds_training_up_any_more() -> None:
    """The finding of slow saves ends within 20 windows without a save that holds up training."""
    pace = Pace()
    slow = [CLEAN, replace(CLEAN, save=3.0), CLEAN]
    ((_, found),) = history(pace, *[(1, slow), (3, [CLEAN] * 3)] * 4)
    assert found is not None
    ((windows, gone),) = history(pace, (100, [CLEAN] * 3))
    assert gone is None
    assert windows <= 20


def test_the_kernels_counters_are_read() -> None:
    """The kernel's counters of delays, throttling and pressure are read, from recordings of a host
    with control groups v1 and of a container with v2.
    """
    assert delayed_of("259356000 61029000 2\n") == pytest.approx(0.061029)
    assert delayed_of("") == 0.0
    v1 = "nr_periods 1187\nnr_throttled 1031\nthrottled_time 98761234567\n"
    v2 = "usage_usec 9\nuser_usec 5\nsystem_usec 4\nnr_periods 81\nnr_throttled 40\n"
    assert throttled_of(v1) == pytest.approx(98.761234567)
    assert throttled_of(f"{v2}throttled_usec 2500000\n") == 2.5
    assert throttled_of(v2.splitlines()[0]) == 0.0
    pressure = "some avg10=60.17 avg60=27.31 avg300=8.86 total=39997848\nfull avg10=0.00 total=0\n"
    assert pressed_of(pressure) == pytest.approx(39.997848)
    assert pressed_of("") == 0.0
    counters = CpuCounters()
    first = counters.read()
    assert counters.read().since(first).delayed >= 0

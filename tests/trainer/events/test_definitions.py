"""Goodput by NVIDIA's and by Google's definition, computed from one run's events and compared with
their formulas.
"""

from __future__ import annotations

from itertools import accumulate

import pytest

from tests.trainer.events.stories import Story
from trainer.events.account import account_of
from trainer.events.event import parse_events

START_SECONDS = 0.5 + 1.0 + 0.3 + 0.1 + 0.4 + 0.7  # container, import, rendezvous, data, restore
STEP_SECONDS = 0.2


def test_both_definitions_come_out_of_one_history() -> None:
    """One account has the goodput by NVIDIA's, by Google's and by our definition."""
    told = Story()
    told.starts(1000, 300, 100, 400)
    told.trains(10, 200)
    told.saves(500)
    told.trains(5, 200)
    told.lives_on(100)
    told.is_away(20_000)
    told.starts(1000, 300, 100, 400)
    told.trains(10, 200, data_ms=150)
    told.evaluates(600)
    told.finishes()
    account = account_of(*parse_events(told.content))

    # NVIDIA, Cluster Readiness Engine: GoodputMeasurementStatus.result
    lost_work = 5 * STEP_SECONDS + 0.1  # t_ch: from the checkpoint to the interruption
    resume, reschedule, save = 2 * START_SECONDS, 20.0, 0.5  # t_rm, t_re, t_save
    parts = (resume, 10 * STEP_SECONDS, save, lost_work, reschedule, 10 * STEP_SECONDS, 0.15, 0.6)
    training_time = list(accumulate(parts))[-1]  # t_w
    running = training_time - reschedule
    assert account.wall_seconds == pytest.approx(training_time)
    assert account.nvidia == pytest.approx((running - lost_work - resume - save) / running)

    # Google, ml-goodput-measurement: steps that were kept, first steps at the time of a usual one
    kept = 10 + 10 + 2
    assert account.google == pytest.approx(kept * STEP_SECONDS / training_time)

    # ours: first steps belong to the start
    assert account.goodput == pytest.approx(20 * STEP_SECONDS / training_time)


def test_nothing_measured_is_no_goodput_by_any_definition() -> None:
    account = account_of([])
    assert (account.goodput, account.nvidia, account.google) == (0.0, None, None)

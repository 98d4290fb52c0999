"""The learning rate at each step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.config import TrainConfig
from trainer.schedule import learning_rate


@st.composite
def train_configs(draw: st.DrawFn) -> TrainConfig:
    max_steps = draw(st.integers(1, 10_000))
    peak = draw(st.floats(1e-6, 1.0))
    return TrainConfig(
        max_steps=max_steps,
        warmup_steps=draw(st.integers(0, max_steps)),
        learning_rate=peak,
        min_lr=draw(st.floats(0, 1)) * peak,
        decay_steps=draw(st.one_of(st.none(), st.integers(max_steps, 20_000))),
    )


@given(train_configs())
def test_the_first_rate_is_above_zero(train: TrainConfig) -> None:
    assert learning_rate(0, train) > 0


@given(train_configs(), st.integers(0, 20_000))
def test_the_rate_stays_below_the_peak_and_above_the_minimum(
    train: TrainConfig, update: int
) -> None:
    rate = learning_rate(update, train)
    assert 0 <= rate <= train.learning_rate * (1 + 1e-12)
    if update >= train.warmup_steps:
        assert rate >= train.min_lr * (1 - 1e-12)


@given(train_configs(), st.integers(0, 20_000))
def test_the_rate_rises_in_the_warm_up_and_never_after_it(train: TrainConfig, update: int) -> None:
    now, then = learning_rate(update, train), learning_rate(update + 1, train)
    if update + 1 < train.warmup_steps:
        assert now < then
    elif update >= train.warmup_steps:
        assert now >= then


def test_the_rates_are_those_of_nanogpt() -> None:
    train = TrainConfig(max_steps=1100, warmup_steps=100, learning_rate=1e-3, min_lr=1e-4)
    assert learning_rate(0, train) == pytest.approx(1e-3 / 101)
    assert learning_rate(100, train) == pytest.approx(1e-3)
    assert learning_rate(600, train) == pytest.approx(5.5e-4)
    assert learning_rate(1100, train) == learning_rate(9999, train) == 1e-4
    longer = replace(train, max_steps=9999, decay_steps=1100)
    assert learning_rate(600, longer) == pytest.approx(5.5e-4)
    assert learning_rate(1100, longer) == 1e-4

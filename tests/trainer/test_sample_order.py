from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.batch_plan import plan_batch
from trainer.sample_order import SampleOrder


@given(
    tokens=st.integers(50, 3000),
    block=st.integers(1, 16),
    batch=st.integers(1, 70),
    world=st.integers(1, 5),
    update=st.integers(0, 200),
)
def test_any_number_of_ranks_gives_the_same_samples(
    tokens: int, block: int, batch: int, world: int, update: int
) -> None:
    whole = SampleOrder(tokens, block, batch, seed=3).window_starts(update, range(batch))
    parts = [
        SampleOrder(tokens, block, batch, seed=3).window_starts(update, part)
        for rank in range(world)
        for part in plan_batch(batch, 4, world, rank).micro_batches
    ]
    assert np.concatenate(parts).tolist() == whole.tolist()
    assert whole.min() >= 0
    assert whole.max() + block + 1 <= tokens


def test_the_order_does_not_depend_on_what_was_asked_before() -> None:
    used, fresh = (SampleOrder(1000, 10, 7, seed=1) for _ in range(2))
    for update in range(40):
        used.window_starts(update, range(7))
    assert used.window_starts(3, range(7)).tolist() == fresh.window_starts(3, range(7)).tolist()


def test_an_epoch_visits_every_window_once_and_the_next_one_differs() -> None:
    order = SampleOrder(1000, 10, 1, seed=1)
    epochs = [
        [int(order.window_starts(epoch * 99 + k, range(1))[0]) for k in range(99)]
        for epoch in range(2)
    ]
    assert order.windows_per_epoch == 99
    for starts in epochs:
        assert len({start // 10 for start in starts}) == 99
        assert len({start % 10 for start in starts}) == 1
    assert epochs[0] != epochs[1]


def test_another_seed_gives_another_order() -> None:
    one, other = (SampleOrder(1000, 10, 50, seed).window_starts(0, range(50)) for seed in (1, 2))
    assert one.tolist() != other.tolist()


def test_the_order_is_the_published_one() -> None:
    # Guards resumes of old runs: a changed generator or formula would silently change the data.
    starts = SampleOrder(1_003_854, 64, 12, seed=1337).window_starts(1500, range(4))
    assert starts.tolist() == [309318, 130310, 685062, 754118]


def test_a_text_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match=r"model.block_size: 64 is too long .* at most 50"):
        SampleOrder(100, 64, 1, seed=0)

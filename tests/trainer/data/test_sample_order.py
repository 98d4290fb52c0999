"""The order in which training visits the windows of the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.data.batch_plan import plan_batch
from trainer.data.permutation import Permutation
from trainer.data.sample_order import SampleOrder


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


def test_two_threads_ask_for_different_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads that ask for samples of different epochs at once get the right ones. After the
    pass that DDP throws away, the loop makes its first batch again while the thread makes the next
    one, perhaps of the next epoch.
    """
    first, second = (SampleOrder(1000, 10, 99, 1).window_starts(n, range(99)) for n in (0, 1))
    order, asked = SampleOrder(1000, 10, 99, 1), list[int]()
    keep = SampleOrder.__setattr__

    def keep_and_be_interrupted(order: SampleOrder, name: str, value: Any) -> None:
        keep(order, name, value)
        if not asked:  # at the worst instant: the epoch is kept and not used yet
            asked.append(1)
            assert (order.window_starts(1, range(99)) == second).all()

    monkeypatch.setattr(SampleOrder, "__setattr__", keep_and_be_interrupted)
    assert (order.window_starts(0, range(99)) == first).all()
    assert asked


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
    assert starts.tolist() == [769622, 383254, 229334, 523158]


@given(size=st.integers(1, 4000), seed=st.integers(0, 2**31 - 1), epoch=st.integers(0, 1000))
def test_every_permutation_is_one_to_one(size: int, seed: int, epoch: int) -> None:
    order = Permutation(size, seed, epoch)(np.arange(size))
    assert sorted(order.tolist()) == list(range(size))


@given(size=st.integers(1, 2**61), place=st.integers(0, 2**61))
def test_sizes_beyond_any_memory_stay_inside(size: int, place: int) -> None:
    """A permutation works for sizes that no list in memory could have."""
    found = Permutation(size, 1)(np.array([place % size]))
    assert 0 <= int(found[0]) < size


@given(size=st.integers(1000, 5000), seed=st.integers(0, 2**31 - 1))
def test_keys_give_orders_that_share_little(size: int, seed: int) -> None:
    """Orders of different seeds or epochs differ. In two random orders about one place is the same;
    20 would happen once in 10^18 cases.
    """
    places = np.arange(size)
    one = Permutation(size, seed, 0)(places)
    for other in (
        Permutation(size, seed, 1)(places),
        Permutation(size, seed + 1, 0)(places),
        places,
    ):
        assert np.count_nonzero(one == other) < 20


@given(size=st.integers(1, 3000), first=st.integers(0, 3000), count=st.integers(0, 50))
def test_any_part_of_an_order_can_be_asked_for_alone(size: int, first: int, count: int) -> None:
    places = np.arange(first, first + count) % size
    assert (
        Permutation(size, 7)(places).tolist()
        == Permutation(size, 7)(np.arange(size))[places].tolist()
    )


def test_a_text_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match=r"model.block_size: 64 cannot be used: .* at most 50"):
        SampleOrder(100, 64, 1, seed=0)

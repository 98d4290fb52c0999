"""How the sequences of an update are divided over the ranks and their micro-steps."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainer.data.batch_plan import plan_batch, split_evenly
from trainer.data.gather import gather
from trainer.data.sample_order import SampleOrder

SIZES = st.integers(1, 300)


@given(st.integers(0, 1000), st.integers(1, 50))
def test_an_even_split_covers_everything_once_with_sizes_that_differ_by_one(
    total: int, parts: int
) -> None:
    ranges = split_evenly(total, parts)
    assert [i for part in ranges for i in part] == list(range(total))
    sizes = [len(part) for part in ranges]
    assert len(sizes) == parts
    assert max(sizes) - min(sizes) <= 1


@given(SIZES, SIZES, st.integers(1, 16))
def test_the_ranks_together_run_every_sequence_exactly_once(
    batch: int, micro: int, world: int
) -> None:
    plans = [plan_batch(batch, micro, world, rank) for rank in range(world)]
    done = [index for plan in plans for part in plan.micro_batches for index in part]
    assert done == list(range(batch))


@given(SIZES, SIZES, st.integers(1, 16))
def test_all_ranks_run_the_same_number_of_micro_steps_within_the_limit(
    batch: int, micro: int, world: int
) -> None:
    plans = [plan_batch(batch, micro, world, rank) for rank in range(world)]
    assert len({len(plan.micro_batches) for plan in plans}) == 1
    assert all(len(part) <= micro for plan in plans for part in plan.micro_batches)
    largest_share = -(-batch // world)
    assert len(plans[0].micro_batches) == -(-largest_share // micro)


@given(SIZES, SIZES, st.integers(1, 16), st.integers(0, 500), st.integers(0, 2**31 - 1))
def test_each_update_has_the_same_samples_on_any_number_of_ranks(
    batch: int, micro: int, world: int, update: int, seed: int
) -> None:
    order = SampleOrder(token_count=5000, block_size=16, global_batch_size=batch, seed=seed)
    alone = order.window_starts(update, range(batch))
    shared = [
        order.window_starts(update, indices)
        for rank in range(world)
        for indices in plan_batch(batch, micro, world, rank).micro_batches
    ]
    assert np.array_equal(np.concatenate(shared), alone)


def test_the_plan_of_64_over_3_says_so() -> None:
    assert plan_batch(64, 8, 3, 0).describe(block_size=256) == (
        "global batch 64 sequences (16384 tokens) = 22+21+21 over 3 rank(s), "
        "3 micro-step(s) of at most 8"
    )


def test_all_micro_batches_have_one_shape() -> None:
    """All micro-batches of all ranks have the same shape, filled up with rows whose targets are
    ignored. Otherwise compiled code would be compiled twice, at another step on each rank.
    """
    plans = [plan_batch(160, 12, 3, rank) for rank in range(3)]
    assert {plan.rows for plan in plans} == {11}
    for plan in plans:
        assert max(len(indices) for indices in plan.micro_batches) <= plan.rows
    tokens = np.arange(100, dtype=np.uint16)
    inputs, targets = gather(tokens, np.array([3, 50]), 4, rows=4)
    assert inputs.shape == targets.shape == (4, 4)
    assert inputs[1].tolist() == [50, 51, 52, 53]
    assert targets[1].tolist() == [51, 52, 53, 54]
    assert targets[2:].unique().tolist() == [-100]


def test_batches_have_no_memory_gaps() -> None:
    """The rows of a batch follow each other without gaps, whether it was filled up or not.

    torch copies a tensor with gaps to a GPU by way of another one that is not page-locked, and the
    host then waits for the GPU in each micro-step.
    """
    tokens = np.arange(100, dtype=np.uint16)
    for rows in (None, 2, 4):
        batch = gather(tokens, np.array([3, 50]), 4, rows=rows)
        assert [part.is_contiguous() for part in batch] == [True, True]

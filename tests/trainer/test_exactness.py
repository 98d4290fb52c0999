"""Ranks, micro-batches and resumes change nothing: whole runs in real processes."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.trainer.lab import (
    Lab,
    assert_bitwise_equal,
    checkpoints,
    losses,
    records,
    saved_tensors,
)
from trainer import checkpoint


@pytest.mark.parametrize("global_batch_size", [12, 10])
def test_one_two_and_three_ranks_have_the_same_losses(lab: Lab, global_batch_size: int) -> None:
    runs = [
        lab.config(
            run_name=f"world-{world}",
            train__global_batch_size=global_batch_size,
            eval__interval=10,
        )
        for world in (1, 2, 3)
    ]
    lab.train_side_by_side(*zip(runs, (1, 2, 3), strict=True))
    one, *others = (records(run) for run in runs)
    assert [record["step"] for record in one] == list(range(1, 21))
    assert one[-1]["loss"] < one[0]["loss"] - 0.3
    for other in others:
        for left, right in zip(one, other, strict=True):
            assert right["loss"] == pytest.approx(left["loss"], abs=1e-5)
            assert right["val_loss"] == pytest.approx(left["val_loss"], abs=1e-5)
            assert right["grad_norm"] == pytest.approx(left["grad_norm"], rel=1e-4)
            assert right["lr"] == left["lr"]


def test_more_ranks_than_sequences_still_give_the_same_losses(lab: Lab) -> None:
    runs = [
        lab.config(run_name=f"w{world}", train__global_batch_size=2, train__max_steps=8)
        for world in (1, 3)
    ]
    lab.train_side_by_side((runs[0], 1), (runs[1], 3))
    one, three = (records(run) for run in runs)
    for left, right in zip(one, three, strict=True):
        assert right["loss"] == pytest.approx(left["loss"], abs=1e-5)


def test_the_micro_batch_size_does_not_change_the_losses(lab: Lab) -> None:
    runs = [
        lab.config(run_name=f"m{micro}", train__micro_batch_size=micro, train__max_steps=10)
        for micro in (12, 5, 1)
    ]
    lab.train_side_by_side(*((run, 1) for run in runs))
    whole, *others = (records(run) for run in runs)
    for other in others:
        for left, right in zip(whole, other, strict=True):
            assert right["loss"] == pytest.approx(left["loss"], abs=1e-5)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_a_resumed_run_is_bitwise_the_uninterrupted_one(lab: Lab, world_size: int) -> None:
    # Dropout is on, micro-steps are uneven, and the epoch ends in the middle of the run.
    shape = {"model__dropout": 0.2, "train__global_batch_size": 11, "train__decay_steps": 24}
    whole = lab.config(run_name="whole", train__max_steps=24, **shape)
    first = lab.config(run_name="resumed", train__max_steps=13, **shape)
    second = lab.config(run_name="resumed", train__max_steps=24, **shape)
    lab.train_side_by_side((whole, world_size), (first, world_size))
    assert json.loads((first.run_dir / "done.json").read_text())["max_steps"] == 13
    lab.train(second, world_size)
    assert "continuing after step 13 from step-00000013" in lab.logs()
    assert_bitwise_equal(whole, second)


def test_a_run_continues_on_another_number_of_ranks_with_the_same_losses(lab: Lab) -> None:
    one = lab.config(run_name="one", train__max_steps=18, train__decay_steps=18)
    lab.train(one, 1)
    part = one
    for steps, world in ((6, 3), (12, 2), (18, 1)):
        part = lab.config(run_name="parts", train__max_steps=steps, train__decay_steps=18)
        lab.train(part, world)
    assert "3 rank(s) saved it, 2 continue" in lab.logs()
    for left, right in zip(losses(one), losses(part), strict=True):
        assert right[0] == left[0]
        assert right[1] == pytest.approx(left[1], abs=1e-5)


def test_evaluation_does_not_disturb_training(lab: Lab) -> None:
    never = lab.config(run_name="never", model__dropout=0.2)
    often = lab.config(run_name="often", model__dropout=0.2, eval__interval=3)
    lab.train_side_by_side((never, 1), (often, 1))
    assert_bitwise_equal(never, often)


def test_a_damaged_newest_checkpoint_costs_only_the_steps_since_the_one_before(lab: Lab) -> None:
    whole = lab.config(run_name="whole", checkpoint__interval=5)
    lab.train(whole, 1)
    damaged = lab.config(run_name="damaged", checkpoint__interval=5)
    shutil.copytree(whole.run_dir, damaged.run_dir)
    newest = checkpoint.directory_of(checkpoints(damaged), 20)
    (newest / "model.pt").write_bytes(b"nothing")
    lab.train(damaged, 1)
    assert "checkpoint step-00000020 skipped: model.pt has 7 bytes" in lab.logs()
    assert "continuing after step 15" in lab.logs()
    assert_bitwise_equal(whole, damaged)


def test_a_run_is_not_continued_with_other_settings(lab: Lab) -> None:
    lab.train(lab.config(train__max_steps=6), 1)
    changed = lab.config(train__max_steps=8, model__n_layer=3, seed=8)
    lab.train(changed, 1, expect=78)
    assert "model.n_layer: 3 now, 2 in step-00000006" in lab.logs()
    assert "seed: 8 now, 7 in step-00000006" in lab.logs()


def test_a_diverged_loss_ends_the_run_as_fatal_and_is_never_saved(lab: Lab) -> None:
    wild = lab.config(train__learning_rate=1e30, train__grad_clip=0.0, checkpoint__interval=1)
    lab.train(wild, 1, expect=78)
    assert "diverged: loss" in lab.logs()
    for tensor in saved_tensors(wild).values():
        assert tensor.isfinite().all()


def test_training_without_a_dataset_says_how_to_make_it(lab: Lab) -> None:
    run = lab.config()
    shutil.rmtree(run.dataset_dir)
    lab.train(run, 1, expect=78)
    assert "python -m trainer prepare" in lab.logs()


def test_a_checkpoint_that_cannot_be_written_ends_all_ranks_and_keeps_the_earlier_ones(
    lab: Lab,
) -> None:
    settings = {"model__n_embd": 64, "checkpoint__interval": 5, "train__decay_steps": 20}
    lab.train(lab.config(train__max_steps=5, **settings), 2)
    run = lab.config(**settings)
    # A file size limit fails in the middle of a file, like a full disk.
    processes = lab.start_ranks(run, 2, largest_file_bytes=100_000)
    assert [process.wait(timeout=60) for process in processes] == [78, 78], lab.logs()
    assert "rank 0: the checkpoint of step 10 could not be written: [Errno 27]" in lab.logs()
    assert "the earlier ones are untouched (step-00000005)" in lab.logs()
    assert "rank 1: a checkpoint could not be written: see rank 0" in lab.logs()
    assert [path.name for path in checkpoints(run).iterdir()] == ["step-00000005"]

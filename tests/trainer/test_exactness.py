"""Ranks, micro-batches and resumes change nothing: whole runs in real processes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.lab import (
    Lab,
    NoSignals,
    assert_bitwise_equal,
    checkpoints,
    losses,
    records,
    saved_tensors,
)
from trainer import checkpoint, durable
from trainer.cpu_copy import CpuCopy
from trainer.device import Compute, choose_compute
from trainer.distributed import World
from trainer.train import train


@pytest.mark.parametrize("global_batch_size", [60, 64])
def test_one_two_and_three_ranks_have_the_same_losses(lab: Lab, global_batch_size: int) -> None:
    runs = [
        lab.config(
            run_name=f"world-{world}",
            train__global_batch_size=global_batch_size,
            train__micro_batch_size=16,
            train__max_steps=50,
            eval__interval=10,
        )
        for world in (1, 2, 3)
    ]
    lab.train_side_by_side(*zip(runs, (1, 2, 3), strict=True))
    one, *others = (records(run) for run in runs)
    assert [record["step"] for record in one] == list(range(1, 51))
    assert one[-1]["loss"] < one[0]["loss"] - 0.3
    for other in others:
        for left, right in zip(one, other, strict=True):
            assert right["loss"] == pytest.approx(left["loss"], rel=1e-5)
            assert right["val_loss"] == pytest.approx(left["val_loss"], rel=1e-5)
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


def test_a_save_holds_its_step_however_long_it_is_copied_beside_the_next_one(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"train__max_steps": 12, "checkpoint__keep_last": 3}
    at_once = lab.config(
        run_name="at-once", **settings, checkpoint__interval=4, checkpoint__asynchronous=False
    )
    beside = lab.config(run_name="beside", **settings, checkpoint__interval=5)  # every 4 steps
    take = CpuCopy.take

    def take_slowly(copy: CpuCopy, *values: Any) -> dict[str, Any]:
        time.sleep(0.5)  # many steps long
        return take(copy, *values)

    for run in (at_once, beside):
        train(run, World(), choose_compute(run.train, 0), NoSignals(), lambda: None)
        monkeypatch.setattr(CpuCopy, "take", take_slowly)
    for step in (4, 8, 12):
        wanted, found = saved_tensors(at_once, step), saved_tensors(beside, step)
        assert [name for name in wanted if not torch.equal(wanted[name], found[name])] == []


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
    whole = lab.config(run_name="whole", checkpoint__interval=6)  # saved every 5 steps
    lab.train(whole, 1)
    damaged = lab.config(run_name="damaged", checkpoint__interval=6)
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


@contextmanager
def disk_of(size_mib: int, where: Path) -> Iterator[None]:
    """A file system of that size at `where`, which only root can make."""
    where.mkdir()
    options = f"size={size_mib}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", where], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", where], check=True)


def fill(path: Path, leave_bytes: int) -> None:
    """Use up the disk of `path` but for `leave_bytes`."""
    disk = os.statvfs(path.parent)
    path.write_bytes(bytes(max(0, disk.f_bavail * disk.f_frsize - leave_bytes)))


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_full_disk_ends_the_run_with_the_reason_and_the_earlier_checkpoints_continue_it(
    lab: Lab, asynchronous: bool
) -> None:
    settings = {
        "model__n_embd": 64,
        "checkpoint__interval": 6 if asynchronous else 5,  # saved every 5 steps
        "train__decay_steps": 20,
        "checkpoint__asynchronous": asynchronous,
    }
    whole = lab.config(run_name="whole", **settings)
    lab.train(whole, 2)
    first = lab.config(run_name="full", train__max_steps=5, **settings)
    run = lab.config(run_name="full", **settings)
    with contextlib.ExitStack() as disk:
        if os.geteuid() == 0 and sys.platform == "linux":
            run.run_dir.parent.mkdir(exist_ok=True)
            disk.enter_context(disk_of(16, run.run_dir))
            lab.train(first, 2)
            fill(run.run_dir / "filler", leave_bytes=300_000)
            lab.train(run, 2, expect=78)
            reason = "[Errno 28] No space left on device"
            (run.run_dir / "filler").unlink()
        else:  # a limit on the size of files fails in the middle of a file just as well
            lab.train(first, 2)
            processes = lab.start_ranks(run, 2, largest_file_bytes=100_000)
            assert [process.wait(timeout=60) for process in processes] == [78, 78], lab.logs()
            reason = "[Errno 27] File too large"
        main, other = (lab.rank_log(run, rank).read_text() for rank in (0, 1))
        assert f"rank 0: the checkpoint of step 10 could not be written: {reason}" in main
        assert "the earlier ones are untouched (step-00000005)" in main
        assert "rank 1: a checkpoint could not be written: see rank 0" in other
        assert [path.name for path in checkpoints(run).iterdir()] == ["step-00000005"]
        lab.train(run, 2)
        assert_bitwise_equal(whole, run)


def test_a_checkpoint_that_somebody_made_is_skipped_and_runs_no_code(lab: Lab) -> None:
    """Tampered with, and with a manifest that fits."""
    settings = {"checkpoint__interval": 6, "checkpoint__keep_last": 4, "train__decay_steps": 20}
    run = lab.config(train__max_steps=20, **settings)
    lab.train(run, 1)
    whole = saved_tensors(run)
    ran = lab.root / "ran"

    class Evil:
        def __reduce__(self) -> tuple[Callable[..., None], tuple[Path]]:
            return Path.touch, (ran,)

    def tamper(step: int, name: str, content: object) -> None:
        path = checkpoint.directory_of(checkpoints(run), step) / name
        if name.endswith(".pt"):
            torch.save(content, path)
        else:
            path.write_text(json.dumps(content))
        manifest = json.loads((path.parent / "manifest.json").read_text())
        manifest["files"][name] = {
            "bytes": path.stat().st_size,
            "sha256": durable.sha256_of(path),
        }
        (path.parent / "manifest.json").write_text(json.dumps(manifest))

    tamper(20, "model.pt", {"wte.weight": Evil()})
    tamper(15, "optimizer.pt", {"wte.weight": {"exp_avg": torch.zeros(3)}})
    tamper(10, "state.json", {"step": 10})
    (run.run_dir / "done.json").unlink()
    lab.train(run, 1)
    log = lab.rank_log(run, 0).read_text()
    assert "checkpoint step-00000020 skipped: cannot be loaded: UnpicklingError" in log
    assert "step-00000015 skipped: optimizer.pt holds other tensors than this model's" in log
    assert "step-00000010 skipped: state.json lacks data_sha256, identity, loss, scaler" in log
    assert "continuing after step 5 from step-00000005" in log
    assert not ran.exists()
    for name, tensor in saved_tensors(run).items():
        assert torch.equal(tensor, whole[name])
    aside = sorted(path.name for path in checkpoints(run).glob("damaged-*"))
    assert aside == [f"damaged-step-{step:08d}" for step in (10, 15, 20)]


def test_the_checkpoint_with_the_lowest_validation_loss_stays(lab: Lab) -> None:
    # The rate is far too high after the warm-up, so that the loss rises again.
    run = lab.config(
        train__max_steps=40,
        train__learning_rate=0.5,
        train__warmup_steps=30,
        train__min_lr=0.5,
        train__grad_clip=0.0,
        eval__interval=4,
        checkpoint__interval=20,
        checkpoint__keep_last=1,
    )
    lab.train(run, 1)
    measured = {r["step"]: r["val_loss"] for r in records(run) if r["val_loss"] is not None}
    best = min(measured, key=lambda step: measured[step])
    assert best not in (20, 40)
    assert checkpoint.all_steps(checkpoints(run)) == [40, best]
    assert checkpoint.best_step(checkpoints(run)) == best
    assert f"step-{best:08d} saved in" in lab.logs()


def test_the_best_checkpoint_is_known_after_a_restart(lab: Lab) -> None:
    settings = {"eval__interval": 4, "checkpoint__keep_last": 1, "train__decay_steps": 12}
    first = lab.config(train__max_steps=8, **settings)
    lab.train(first, 1)
    root = checkpoints(first)
    lowest = checkpoint.val_loss(root, 8)
    state = json.loads((root / "step-00000008" / "state.json").read_text())
    assert state["val_loss"] == lowest is not None
    # The run continues badly: the first one stays the best.
    second = lab.config(
        train__max_steps=12, **settings, train__learning_rate=3.0, train__min_lr=3.0
    )
    lab.train(second, 1)
    assert checkpoint.all_steps(root) == [12, 8]
    assert checkpoint.best_step(root) == 8


def test_float16_with_its_gradient_scaler_resumes_bitwise(lab: Lab) -> None:
    """The settings allow float16 on GPUs only; the arithmetic is there on a CPU too."""
    half = Compute(torch.device("cpu"), "CPU", torch.float16, False, "gloo", ())
    few = {"train__global_batch_size": 4, "train__decay_steps": 6, "eval__batch_size": 1024}
    whole = lab.config(run_name="whole", train__max_steps=6, **few)
    part = lab.config(run_name="parts", train__max_steps=4, **few)
    rest = lab.config(run_name="parts", train__max_steps=6, **few)
    for run in (whole, part, rest):
        train(run, World(), half, NoSignals(), lambda: None)
    assert_bitwise_equal(whole, rest)
    states = [checkpoint.load_state(checkpoints(run), 6) for run in (whole, rest)]
    assert states[0]["scaler"] == states[1]["scaler"]
    assert states[0]["scaler"]["_growth_tracker"] > 0

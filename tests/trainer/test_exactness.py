"""Numbers of ranks, micro-batches and resumes change no loss, in whole runs in real processes."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
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
    last_step,
    losses,
    records,
    saved_tensors,
)
from trainer.checkpoint import durable, retention, store
from trainer.checkpoint.arena import Arena
from trainer.config import RunConfig
from trainer.launch import worker
from trainer.launch.exit_codes import ExitCode, RetryableError
from trainer.launch.status_files import ExitReport
from trainer.metrics.log import MetricsLog, StepMetrics, read_records
from trainer.metrics.speed import Speed
from trainer.parallel.device import Compute, choose_compute
from trainer.parallel.world import World
from trainer.train import train


@pytest.mark.parametrize("global_batch_size", [60, 64])
def test_one_two_and_three_ranks_have_the_same_losses(lab: Lab, global_batch_size: int) -> None:
    """One, two and three ranks have the same losses, validation losses and norms of gradients, but
    for rounding.
    """
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
    """A rank without a sequence takes part without changing the result. A warning says that it is
    of no use, because it may be a GPU that somebody pays for.
    """
    runs = [
        lab.config(run_name=f"w{world}", train__global_batch_size=2, train__max_steps=8)
        for world in (1, 3)
    ]
    lab.train_side_by_side((runs[0], 1), (runs[1], 3))
    one, three = (losses(run) for run in runs)
    assert [loss for _, loss, _ in three] == pytest.approx([loss for _, loss, _ in one], abs=1e-5)
    warning = "warning: 1 of 3 ranks has nothing to compute, because train.global_batch_size is 2"
    assert lab.logs().count(warning) == 1


def test_the_micro_batch_size_does_not_change_the_losses(lab: Lab) -> None:
    runs = [
        lab.config(run_name=f"m{micro}", train__micro_batch_size=micro, train__max_steps=10)
        for micro in (12, 5, 1)
    ]
    lab.train_side_by_side(*((run, 1) for run in runs))
    whole, *others = ([loss for _, loss, _ in losses(run)] for run in runs)
    for other in others:
        assert other == pytest.approx(whole, abs=1e-5)


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
    """A save in the background has the weights of its own step, however late they are copied while
    training goes on.
    """
    settings = {"train__max_steps": 12, "checkpoint__keep_last": 3}
    at_once = lab.config(
        run_name="at-once", **settings, checkpoint__interval=4, checkpoint__asynchronous=False
    )
    beside = lab.config(run_name="beside", **settings, checkpoint__interval=5)  # every 4 steps
    pieces = Arena.pieces
    steps_of_writes: list[int] = []

    def pieces_late(arena: Arena, begin: int, end: int) -> Iterator[memoryview]:
        """Let the writing thread copy nothing before training has changed the weights, or waits."""
        saved = 4 * (len(steps_of_writes) // 2 + 1)  # two files of tensors for each save
        steps_of_writes.append(saved)
        deadline = time.monotonic() + 60
        while last_step(beside) <= saved < 12 and time.monotonic() < deadline:
            time.sleep(0.001)
        yield from pieces(arena, begin, end)

    for run in (at_once, beside):
        train(run, World(), choose_compute(run.train, 0), NoSignals(), lambda: None)
        monkeypatch.setattr(Arena, "pieces", pieces_late)
    assert steps_of_writes == [4, 4, 8, 8, 12, 12]
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
    newest = store.directory_of(checkpoints(damaged), 20)
    (newest / "model-00000.bin").write_bytes(b"nothing")
    lab.train(damaged, 1)
    assert "checkpoint step-00000020 skipped: model-00000.bin has 7 bytes" in lab.logs()
    assert "continuing after step 15" in lab.logs()
    assert_bitwise_equal(whole, damaged)


def test_a_run_is_not_continued_with_other_settings(lab: Lab) -> None:
    lab.train(lab.config(train__max_steps=6), 1)
    changed = lab.config(train__max_steps=8, model__n_layer=3, seed=8)
    lab.train(changed, 1, expect=78)
    assert "model.n_layer: 3 now, 2 in step-00000006" in lab.logs()
    assert "seed: 8 now, 7 in step-00000006" in lab.logs()


def test_a_diverged_loss_is_tried_once_more_and_then_fatal(lab: Lab) -> None:
    """A diverged loss is tried once more, as a bad card may be the cause, and is then fatal. The
    message names the step at which it happened, and no diverged weights are saved.
    """
    settings = {"train__learning_rate": 1e30, "train__grad_clip": 0.0, "log__interval": 7}
    wild = lab.config(**settings, checkpoint__interval=1)
    lab.train(wild, 2, expect=75)
    assert "step 2 diverged: loss" in lab.logs()
    assert "(if it diverges at that step again, the run fails)" in lab.logs()
    lab.train(wild, 2, expect=78)
    assert "it did so at the start before this one too" in lab.logs()
    for tensor in saved_tensors(wild).values():
        assert tensor.isfinite().all()


def test_training_without_a_dataset_says_how_to_make_it(lab: Lab) -> None:
    run = lab.config()
    shutil.rmtree(run.dataset_dir)
    lab.train(run, 1, expect=78)
    assert "python -m trainer prepare" in lab.logs()


@contextmanager
def disk_of(size_mib: int, where: Path) -> Iterator[None]:
    """Mount a file system of this size at `where` for the block, which only root can do."""
    where.mkdir()
    options = f"size={size_mib}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", where], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", where], check=True)


def fill(path: Path, leave_bytes: int) -> None:
    """Use up the disk of `path`, except for `leave_bytes`."""
    disk = os.statvfs(path.parent)
    path.write_bytes(bytes(max(0, disk.f_bavail * disk.f_frsize - leave_bytes)))


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_full_disk_ends_the_run_with_the_reason_and_the_earlier_checkpoints_continue_it(
    lab: Lab, asynchronous: bool
) -> None:
    """A full disk ends all ranks with the reason. The earlier checkpoints stay, and the run
    continues from them as if nothing had happened.
    """
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
            told = "Make room on the volume, for checkpoint.keep_last + 2 = 4 checkpoints"
            assert told in lab.rank_log(run, 0).read_text()
            (run.run_dir / "filler").unlink()
        else:  # a limit on the size of files fails in the middle of a file just as well
            lab.train(first, 2)
            processes = lab.start_ranks(run, 2, largest_file_bytes=100_000)
            assert [process.wait(timeout=60) for process in processes] == [78, 78], lab.logs()
            reason = "[Errno 27] File too large"
        main, other = (lab.rank_log(run, rank).read_text() for rank in (0, 1))
        assert f"rank 0: the checkpoint of step 10 could not be written: {reason}" in main
        assert "the earlier ones are untouched (step-00000005)" in main
        assert main.rstrip().endswith(". Then start the run again")
        assert f"rank 1: the checkpoint of step 10 could not be written: {reason}" in other
        assert [path.name for path in checkpoints(run).iterdir()] == ["step-00000005"]
        lab.train(run, 2)
        assert_bitwise_equal(whole, run)


def test_a_checkpoint_that_somebody_made_is_skipped_and_runs_no_code(lab: Lab) -> None:
    """Checkpoints that somebody has changed, with manifests that fit, are skipped with the reason
    and kept under other names. No file is of a kind that could contain code.
    """
    settings = {"checkpoint__interval": 6, "checkpoint__keep_last": 4, "train__decay_steps": 20}
    run = lab.config(train__max_steps=20, **settings)
    lab.train(run, 1)
    whole = saved_tensors(run)

    def layout_of(step: int) -> dict[str, Any]:
        path = store.directory_of(checkpoints(run), step) / "layout.json"
        return dict(json.loads(path.read_text()))

    def tamper(step: int, name: str, content: object) -> None:
        path = store.directory_of(checkpoints(run), step) / name
        path.write_text(json.dumps(content))
        manifest = json.loads((path.parent / "manifest.json").read_text())
        manifest["files"][name] = {
            "bytes": path.stat().st_size,
            "sha256": durable.sha256_of(path),
        }
        (path.parent / "manifest.json").write_text(json.dumps(manifest))

    elsewhere, other = layout_of(20), layout_of(15)
    elsewhere["tensors"]["model.wte.weight"]["parts"][0]["file"] = "../../../secret"
    other["tensors"].pop("optimizer.wte.weight.exp_avg")
    tamper(20, "layout.json", elsewhere)
    tamper(15, "layout.json", other)
    tamper(10, "state.json", {"step": 10})
    (run.run_dir / "done.json").unlink()
    lab.train(run, 1)
    log = lab.rank_log(run, 0).read_text()
    assert "step-00000020 skipped: layout.json: a part of model.wte.weight does not fit" in log
    assert "step-00000015 skipped: it holds other tensors than this model and its optim" in log
    assert "step-00000010 skipped: state.json lacks data_sha256, identity, loss, scaler" in log
    assert "continuing after step 5 from step-00000005" in log
    tensors = saved_tensors(run)
    assert tensors.keys() == whole.keys()
    assert [name for name in whole if not torch.equal(tensors[name], whole[name])] == []
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
        checkpoint__interval=40,
        checkpoint__keep_last=1,
    )
    lab.train(run, 1)
    measured = {r["step"]: r["val_loss"] for r in records(run) if r["val_loss"] is not None}
    best = min(measured, key=lambda step: measured[step])
    assert best != 40  # or it would be saved anyway
    assert store.all_steps(checkpoints(run)) == [40, best]
    assert retention.best_step(checkpoints(run)) == best
    assert f"step-{best:08d} saved in" in lab.logs()


def test_the_best_checkpoint_is_known_after_a_restart(lab: Lab) -> None:
    settings = {"eval__interval": 4, "checkpoint__keep_last": 1, "train__decay_steps": 12}
    first = lab.config(train__max_steps=8, **settings)
    lab.train(first, 1)
    root = checkpoints(first)
    lowest = retention.val_loss(root, 8)
    state = json.loads((root / "step-00000008" / "state.json").read_text())
    assert state["val_loss"] == lowest is not None
    # The run continues badly: the first one stays the best.
    second = lab.config(
        train__max_steps=12, **settings, train__learning_rate=3.0, train__min_lr=3.0
    )
    lab.train(second, 1)
    assert store.all_steps(root) == [12, 8]
    assert retention.best_step(root) == 8


def in_float16(lab: Lab, monkeypatch: pytest.MonkeyPatch, scale: float) -> RunConfig:
    """Train a run in float16 whose gradient scaler begins with this scale, and return it."""
    half = Compute(torch.device("cpu"), "CPU", torch.float16, False, "gloo", ())
    scaler = functools.partial(torch.amp.grad_scaler.GradScaler, init_scale=scale)
    monkeypatch.setattr(torch.amp, "GradScaler", scaler)
    run = lab.config(train__max_steps=60, train__global_batch_size=4, model__n_layer=1)
    train(run, World(), half, NoSignals(), lambda: None)
    return run


def test_skipped_updates_of_float16_are_counted(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates that float16's gradient scaler skips are counted in the records, and end no run, as
    overflows are part of its work.
    """
    run = in_float16(lab, monkeypatch, scale=2.0**40)
    found = records(run)
    assert found[0]["grad_norm"] is None
    assert found[0]["skipped_updates"] == 1
    assert found[-1]["grad_norm"] > 0
    assert 1 < found[-1]["skipped_updates"] < 50
    assert found[-1]["loss"] < found[0]["loss"]


def test_float16_that_never_gets_going_ends(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A float16 run whose gradients overflow at every step ends after 50 updates. Otherwise it
    would go on to its last step and learn nothing.
    """
    with pytest.raises(RetryableError, match="step 1 diverged"):
        in_float16(lab, monkeypatch, scale=2.0**100)
    config = lab.config()
    assert [record["step"] for record in records(config)] == list(range(1, 50))


def test_a_loss_that_overflows_once_is_recorded_as_none(tmp_path: Path) -> None:
    """A loss or norm that is not finite is recorded as null. In float16 the loss of a skipped
    update may be infinite.
    """
    speed = Speed(1.0, 1.0, None, 0.0, 1.0, 1.0, 1.0)
    metrics = StepMetrics.of(
        step=1,
        loss=math.inf,
        val_loss=None,
        val_bits_per_byte=None,
        lr=1.0,
        grad_norm=math.nan,
        skipped_updates=1,
        speed=speed,
        data_seconds=0.0,
        peak_memory_bytes=1,
        checkpoint_seconds=None,
        eta_seconds=None,
        slow_rank=None,
        slow_cause=None,
        slow_factor=None,
        tokens=1,
        world_size=1,
    )
    log = MetricsLog(tmp_path, 0, pytest.fail)
    log.record(metrics)
    log.close()
    found, damaged = read_records(tmp_path / "metrics.jsonl")
    assert (found[0]["loss"], found[0]["grad_norm"], damaged) == (None, None, 0)
    assert metrics.line(2).startswith("step 1/2 loss - val -")


def test_run_without_entrypoint_says_how_it_ended(lab: Lab) -> None:
    """Ranks that were started by torchrun or by hand say how the run ended, once, and how it goes
    on. A finished run that is started again would otherwise end without a word.
    """
    run = lab.config(train__max_steps=6)
    for times in (1, 2):
        lab.train(run, 2)
        said = "run tiny: finished at step 6; raise train.max_steps to go on\n"
        assert lab.rank_log(run, 0).read_text().count(said) == times
    assert "finished" not in lab.rank_log(run, 1).read_text()


def test_too_little_memory_is_tried_once_more(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lack of GPU memory is tried once more, as a restart mends fragmented memory. The second time
    the settings are the cause, and it is fatal.
    """
    run = lab.config(train__max_steps=6)

    def no_memory(*values: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    def end() -> ExitReport:
        return worker._train(run, World(), NoSignals(), None)  # pyright: ignore

    with monkeypatch.context() as failing:
        failing.setattr(worker, "train", no_memory)
        assert end().code == ExitCode.RETRYABLE
        report = end()
    assert report.code == ExitCode.FATAL
    assert "lower train.micro_batch_size" in report.reason
    assert end().code == ExitCode.DONE


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
    ],
)
def test_too_little_host_memory_is_tried_once_more(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Lack of the machine's memory is tried once more too, and then ends the run with what to do. A
    model that is too large would otherwise be started again and again.
    """
    run = lab.config(train__max_steps=6)

    def no_memory(*values: object) -> None:
        raise error

    def end() -> ExitReport:
        return worker._train(run, World(), NoSignals(), None)  # pyright: ignore

    monkeypatch.setattr(worker, "train", no_memory)
    assert end().code == ExitCode.RETRYABLE
    report = end()
    assert report.code == ExitCode.FATAL
    assert "too little memory on the machine or in the pod" in report.reason
    assert "give each rank more memory (memoryPerRank)" in report.reason
    assert str(error) in report.reason


@pytest.mark.parametrize(
    ("number", "told"),
    [(errno.EROFS, "mounted read-only"), (errno.ENOSPC, "Make room on the volume")],
)
def test_volume_that_takes_no_file_ends_the_run(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, number: int, told: str
) -> None:
    """A volume that takes no file before the first save, as one that is mounted read-only, ends the
    run. The reason says what is wrong with it and what to do.
    """
    run = lab.config(train__max_steps=6)

    def fail(*values: object) -> None:
        raise OSError(number, os.strerror(number), str(run.run_dir / "run.lock"))

    monkeypatch.setattr(worker, "train", fail)
    report = worker._train(run, World(), NoSignals(), None)  # pyright: ignore
    assert report.code == ExitCode.FATAL
    assert os.strerror(number) in report.reason
    assert told in report.reason
    assert str(run.run_dir) in report.reason
    assert "no room" not in report.reason


def test_a_mistake_of_torch_is_tried_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `ValueError` of torch may be tried again, and one that comes from the settings is fatal."""
    run = lab.config(train__max_steps=6)

    def fail(*values: object) -> None:
        raise ValueError("Default process group has not been initialized")

    with monkeypatch.context() as failing:
        failing.setattr(worker, "train", fail)
        report = worker._train(run, World(), NoSignals(), None)  # pyright: ignore
    assert report.code == ExitCode.RETRYABLE
    long = lab.config(model__block_size=100_000)
    assert worker._train(long, World(), NoSignals(), None).code == ExitCode.FATAL  # pyright: ignore


def test_deterministic_operations_can_be_asked_for(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `train.deterministic` torch uses only deterministic algorithms. On GPUs a resume is bit
    by bit the same only with these.
    """
    asked: list[bool] = []
    monkeypatch.setattr(torch, "use_deterministic_algorithms", asked.append)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    run = lab.config(train__max_steps=6, train__deterministic=True)
    report = worker._train(run, World(), NoSignals(), None)  # pyright: ignore
    assert report.code == ExitCode.DONE
    assert asked == [True]
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")


def test_float16_with_its_gradient_scaler_resumes_bitwise(lab: Lab) -> None:
    """A resumed float16 run is bit by bit the uninterrupted one, with the state of its gradient
    scaler. The settings allow float16 only on GPUs, so the test chooses it directly.
    """
    half = Compute(torch.device("cpu"), "CPU", torch.float16, False, "gloo", ())
    few = {"train__global_batch_size": 4, "train__decay_steps": 6, "eval__batch_size": 1024}
    whole = lab.config(run_name="whole", train__max_steps=6, **few)
    part = lab.config(run_name="parts", train__max_steps=4, **few)
    rest = lab.config(run_name="parts", train__max_steps=6, **few)
    for run in (whole, part, rest):
        train(run, World(), half, NoSignals(), lambda: None)
    assert_bitwise_equal(whole, rest)
    states = [store.load_state(checkpoints(run), 6) for run in (whole, rest)]
    assert states[0]["scaler"] == states[1]["scaler"]
    assert states[0]["scaler"]["_growth_tracker"] > 0

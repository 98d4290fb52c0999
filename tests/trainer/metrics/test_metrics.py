"""The records of a run in its log, in `metrics.jsonl` and for TensorBoard."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
import tracemalloc
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.trainer.lab import Lab, NoSignals, records
from trainer.metrics.curves import Curves
from trainer.metrics.log import MetricsLog, StepMetrics, read_records, sync_metrics
from trainer.metrics.records_file import RecordsFile
from trainer.metrics.speed import Speedometer
from trainer.parallel.device import choose_compute
from trainer.parallel.world import World
from trainer.train import train


def metrics_of(step: int) -> StepMetrics:
    """Return a record of a step."""
    return StepMetrics(
        step=step,
        loss=3.12341,
        val_loss=None,
        val_bits_per_byte=None,
        lr=9.1e-4,
        grad_norm=1.5,
        skipped_updates=0,
        tokens_per_second=12345.4,
        tokens_per_second_per_rank=6172.7,
        step_seconds=0.1,
        step_seconds_p50=0.099,
        step_seconds_p95=0.2,
        mfu=None,
        data_wait_share=0.0123,
        peak_memory_bytes=300 * 2**20,
        checkpoint_seconds=None,
        eta_seconds=185.0,
        slow_rank=None,
        slow_cause=None,
        slow_factor=None,
        tokens=1000,
        world_size=2,
        unix_time=0.0,
    )


def test_a_line_for_people_holds_step_loss_and_speed() -> None:
    assert metrics_of(20).line(300) == (
        "step 20/300 loss 3.1234 val - lr 9.1e-04 tokens/s 12345 grad_norm 1.500 mfu n/a "
        "p50 99.0ms p95 200.0ms data 1.2% mem 300MiB eta 3m05s"
    )


def test_speed_counts_only_the_time_between_start_and_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Speed, MFU and percentiles count only the time between start and stop."""
    now = 0.0
    monkeypatch.setattr("trainer.metrics.speed.time.perf_counter", lambda: now)
    cpu = torch.device("cpu")
    meter = Speedometer(100, flops_per_token=6, peak=10.0, world_size=3, device=cpu)
    now = 50.0
    meter.start(4)
    for step, seconds in ((5, 6.0), (6, 1.0), (7, 1.0), (8, 2.0)):
        with meter.fetching():
            now += seconds / 4
        now += seconds * 3 / 4
        meter.step_done(step)
    speed = meter.stop(8)
    assert (speed.tokens_per_second, speed.step_seconds) == (40.0, 2.5)
    assert speed.mfu == 40.0 * 6 / 30.0
    assert speed.data_seconds == 2.5 / 4
    # The first step of a process is not an ordinary one.
    assert (speed.step_seconds_p50, speed.step_seconds_p95) == (1.0, pytest.approx(1.9))


def test_time_left_is_that_of_usual_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that was suspended, or an evaluation soon after the start, says nothing about the
    time of the steps that are left. What is done regularly counts as often as it will be done.
    """
    now = 0.0
    monkeypatch.setattr("trainer.metrics.speed.time.perf_counter", lambda: now)
    meter = Speedometer(100, 6, None, 1, torch.device("cpu"))
    meter.start(0)
    for step in range(1, 9):
        now += 3600.0 if step == 5 else 1.0 + step % 2
        meter.step_done(step)
    meter.stop(8)
    now += 600.0
    meter.start(8)
    usual = 4 * 1.0 + 2 * 2.0  # the steps 2 to 8 without the fifth
    assert meter.seconds_left(8, 14, ()) == usual
    assert meter.seconds_left(8, 14, [(0, 90.0), (5, 10.0), (7, 100.0)]) == usual + 10.0 + 100.0
    assert meter.seconds_left(14, 14, [(7, 100.0)]) == 0.0


def test_a_wait_between_two_steps_is_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time that is left out between two steps, such as a wait for a save, does not count for the
    speed.
    """
    now = 0.0
    monkeypatch.setattr("trainer.metrics.speed.time.perf_counter", lambda: now)
    meter = Speedometer(100, 6, None, 1, torch.device("cpu"))
    meter.start(0)
    for step in (1, 2, 3):
        now += 1.0
        meter.step_done(step)
        now += 7.0
        meter.leave_out(7.0)
    speed = meter.stop(3)
    assert (speed.step_seconds, speed.step_seconds_p50, speed.step_seconds_p95) == (1.0, 1.0, 1.0)
    assert speed.tokens_per_second == 100.0


def test_the_time_left_is_not_known_after_one_step() -> None:
    meter = Speedometer(100, 6, None, 1, torch.device("cpu"))
    meter.start(0)
    meter.step_done(1)
    assert meter.seconds_left(1, 11, ()) is None


def test_records_after_a_resume_follow_without_gap_or_overlap(lab: Lab) -> None:
    run = lab.config(train__max_steps=10, train__decay_steps=20, checkpoint__interval=4)
    lab.train(run, 1)
    # As after a crash: two steps past the checkpoint are recorded, and half a line.
    with (run.run_dir / "metrics.jsonl").open("a") as file:
        for step in (11, 12):
            file.write(json.dumps({**records(run)[0], "step": step, "loss": 99.0}) + "\n")
        file.write('{"step": 13, "lo')
    more = lab.config(train__max_steps=20)
    lab.train(more, 1)
    assert [record["step"] for record in records(more)] == list(range(1, 21))
    assert all(record["loss"] < 5 for record in records(more))


def test_curves_do_not_overlap_after_crashes(lab: Lab) -> None:
    """TensorBoard shows each step once and misses none, although logs end anywhere after
    crashes.
    """
    settings = {"train__decay_steps": 30, "checkpoint__interval": 4}
    run = lab.config(train__max_steps=30, **settings)
    for steps in (10, 20, 30):
        run = lab.config(train__max_steps=steps, **settings)
        lab.train(run, 1)
        if steps < 30:  # as if it had been killed 2 steps before the end
            shutil.rmtree(run.run_dir / "checkpoints" / f"step-{steps:08d}")
            (run.run_dir / "done.json").unlink()
    curves = EventAccumulator(str(run.run_dir / "tensorboard")).Reload()
    assert [event.step for event in curves.Scalars("loss")] == list(range(1, 31))
    assert [event.value for event in curves.Scalars("loss")] == pytest.approx(
        [record["loss"] for record in records(run)]
    )


@pytest.mark.parametrize("asynchronous", [True, False])
def test_metrics_are_durable_before_their_checkpoint(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    """The metrics of all steps are on the disk before the checkpoint after them is in place.
    Otherwise a machine that is lost right after a save would leave a gap for ever, because the run
    continues after that step.
    """
    run = lab.config(
        train__max_steps=4,
        train__warmup_steps=2,
        checkpoint__interval=2,
        checkpoint__asynchronous=asynchronous,
    )
    durable_bytes: dict[Path, int] = {}
    left = lab.root / "left"
    fsync, rename = os.fsync, Path.rename

    def counted_fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        durable_bytes[path] = path.stat().st_size
        fsync(descriptor)

    def lose_machine_and_rename(path: Path, target: Path) -> Path:
        """Copy what is on the disk at this moment to a folder with the checkpoint's name, and then
        rename.
        """
        if target.name.startswith("step-"):
            (left / target.name).mkdir(parents=True)
            (curves,) = (run.run_dir / "tensorboard").glob("events.*")
            for file in (run.run_dir / "metrics.jsonl", curves):
                content = file.read_bytes()[: durable_bytes.get(file, 0)]
                (left / target.name / file.name).write_bytes(content)
        return rename(path, target)

    with monkeypatch.context() as watched:
        watched.setattr(os, "fsync", counted_fsync)
        watched.setattr(Path, "rename", lose_machine_and_rename)
        train(run, World(), choose_compute(run.train, 0), NoSignals(), lambda: None)
    for step in (2, 4):
        folder = left / f"step-{step:08d}"
        wanted = list(range(1, step + 1))
        found, _ = read_records(folder / "metrics.jsonl")
        assert [record["step"] for record in found][:step] == wanted
        curves = EventAccumulator(str(folder)).Reload()
        assert "loss" in curves.scalars.Keys()
        assert [event.step for event in curves.Scalars("loss")][:step] == wanted


def test_volume_that_hangs_holds_up_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training goes on while the volume does not answer a write of metrics: the other ranks would
    wait for rank 0, and end the round. What was recorded meanwhile is written later, in order, and
    before a checkpoint counts as complete.
    """
    log, answers = MetricsLog(tmp_path, 0, print), threading.Event()
    hangs_at_most = threading.Timer(10, answers.set)
    write = RecordsFile._write  # pyright: ignore[reportPrivateUsage]

    def write_once_it_answers(file: RecordsFile) -> None:
        answers.wait()
        write(file)

    monkeypatch.setattr(RecordsFile, "_write", write_once_it_answers)
    hangs_at_most.start()
    for step in (1, 2, 3):
        log.record(metrics_of(step))
    assert not answers.is_set()
    answers.set()
    log.sync()
    found, _ = read_records(tmp_path / "metrics.jsonl")
    assert [record["step"] for record in found] == [1, 2, 3]
    hangs_at_most.cancel()
    log.close()


def test_current_file_of_curves_is_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of TensorBoard that this process writes becomes durable, also if the file of an
    earlier start seems to be newer, because the clock was ahead then. One that this process has
    left after an error of the volume is not touched: the error could end each save.
    """
    folder = tmp_path / "tensorboard"
    folder.mkdir()
    # In pods, the name of the host and the number of the process are often the same again.
    last = f"9999999999.{socket.gethostname()}.{os.getpid()}.99"
    earlier = folder / f"events.out.tfevents.{last}.ab12cd34"
    earlier.touch()
    os.utime(earlier, (9_999_999_999, 9_999_999_999))
    made = list[Path]()
    for _ in range(11):  # Their numbers get a digit more.
        Curves(folder, 1, print).close()
        made += [path for path in folder.iterdir() if path not in (earlier, *made)]
    os.utime(made[0])
    synced: list[Path] = []
    monkeypatch.setattr(
        os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink())
    )
    sync_metrics(tmp_path)
    assert synced == [made[-1], folder]


def test_every_record_says_how_fast_and_how_big_the_run_is(lab: Lab) -> None:
    """Each record has the speed, the times of steps, the memory, the time of a save, and the time
    left.
    """
    run = lab.config(train__max_steps=12, checkpoint__interval=6, log__interval=2)
    lab.train(run, 2)
    found = records(run)
    assert [record["step"] for record in found] == [1, 2, 4, 6, 8, 10, 12]
    for record in found:
        assert record["tokens_per_second_per_rank"] == record["tokens_per_second"] / 2
        assert 0 < record["step_seconds_p50"] <= record["step_seconds_p95"]
        assert 0 < record["data_wait_share"] < 1
        assert record["peak_memory_bytes"] > 50 * 2**20
        assert record["mfu"] is None
    # Saved after 5 and 10; step 7 waits for the first write, as the second one is step 10's.
    assert [record["step"] for record in found if record["checkpoint_seconds"]] == [6, 8, 12]
    assert [record["eta_seconds"] is None for record in found[:2]] == [True, False]
    assert found[-1]["eta_seconds"] == 0


def test_validation_is_recorded_with_bits_per_byte(lab: Lab) -> None:
    run = lab.config(train__max_steps=4, train__warmup_steps=2, eval__interval=2)
    lab.train(run, 1)
    seen = {r["step"]: (r["val_loss"], r["val_bits_per_byte"]) for r in records(run)}
    assert seen[1] == seen[3] == (None, None)
    meta = json.loads((Path(run.dataset_dir) / "meta.json").read_text())
    tokens, size = meta["splits"]["val"]["tokens"], meta["splits"]["val"]["bytes"]
    for step in (2, 4):
        loss, bits = seen[step]
        assert bits == pytest.approx(loss / 0.6931471805599453 * (tokens - 1) / size)
    assert list((run.run_dir / "tensorboard").glob("events.*"))


def test_memory_of_a_start_does_not_grow_with_the_records(tmp_path: Path) -> None:
    """A start reads a long file of records with as little memory as a short one. Rank 0 of a run of
    months drops what comes after the checkpoint from millions of lines.
    """
    path = tmp_path / "metrics.jsonl"

    def peak_bytes(records: int) -> int:
        values = {"loss": 3.25, "val_loss": None, "lr": 6e-4, "tokens_per_second": 1234.5}
        lines = [json.dumps({"step": number, **values}) for number in range(records)]
        path.write_text("\n".join([*lines, '{"step": 1']))
        tracemalloc.start()
        try:
            log = MetricsLog(tmp_path, records - 10, pytest.fail)
            log.add_validation(records - 10, 2.5, None)
            log.close()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = 200, 20_000
    peak_bytes(few)  # so that what is imported once does not count
    assert peak_bytes(many) < 2 * peak_bytes(few)
    peak_bytes(many)
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["step"] for record in kept] == list(range(many - 9))
    assert (kept[-1]["val_loss"], kept[-2]["val_loss"]) == (2.5, None)

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.trainer.lab import Lab, records
from trainer.metrics import Speedometer, StepMetrics


def test_a_line_for_people_holds_step_loss_and_speed() -> None:
    metrics = StepMetrics(
        step=20,
        loss=3.12341,
        val_loss=None,
        val_bits_per_byte=None,
        lr=9.1e-4,
        grad_norm=1.5,
        tokens_per_second=12345.4,
        step_seconds=0.1,
        mfu=None,
        tokens=1000,
        world_size=2,
        unix_time=0.0,
    )
    assert metrics.line(300) == (
        "step 20/300 loss 3.1234 val - lr 9.1e-04 tokens/s 12345 grad_norm 1.500 mfu n/a"
    )


def test_speed_counts_only_the_time_between_start_and_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("trainer.metrics.time.perf_counter", lambda: now)
    meter = Speedometer(tokens_per_step=100, flops_per_token=6, peak=10.0, world_size=3)
    now = 50.0
    meter.start(4)
    now = 60.0
    speed = meter.stop(9)
    assert (speed.tokens_per_second, speed.step_seconds) == (50.0, 2.0)
    assert speed.mfu == 50.0 * 6 / 30.0


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

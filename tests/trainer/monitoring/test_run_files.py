"""The metrics that come from the files of a run. Files that are missing or damaged give none."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from trainer.config import RunConfig
from trainer.mirror.status import MirrorStatus, write_status
from trainer.monitoring import run_files
from trainer.monitoring.families import SLOW_RANK
from trainer.monitoring.run_files import last_records, samples_of_files
from trainer.run_folder import METRICS_FILE


def config(root: Path, **checkpoint: Any) -> RunConfig:
    """Return a run with these settings of its checkpoints, and make its folder."""
    given = {"run_name": "r", "data_root": str(root), "checkpoint": checkpoint}
    run = RunConfig.from_mapping({**given, "dataset": {"file": "/text"}})
    run.run_dir.mkdir(parents=True, exist_ok=True)
    return run


def found(run: RunConfig) -> dict[str, float]:
    """Return the values of all metrics by name."""
    return {sample.family.name: sample.value for sample in samples_of_files(run)}


def test_a_run_without_files_has_only_what_is_known(tmp_path: Path) -> None:
    run = config(tmp_path, interval=0)
    assert set(found(run)) == {
        "disttrain_max_steps",
        "disttrain_checkpoint_step",
        "disttrain_volume_free_bytes",
        "disttrain_volume_size_bytes",
    }
    assert found(run)["disttrain_checkpoint_step"] == 0


def test_newest_record_and_newest_evaluation_are_offered(tmp_path: Path) -> None:
    """The newest record and the newest evaluation are offered, a loss of null as NaN, and damaged
    lines are passed over.
    """
    run = config(tmp_path)
    lines = [
        {"step": 1, "loss": 3.0, "val_loss": 2.5, "mfu": None},
        {"step": 2, "loss": None, "val_loss": None, "mfu": 0.25, "unix_time": 17.5},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (run.run_dir / METRICS_FILE).write_text(f'{text}{{"step": "damaged"}}\n{{"step": 3, "lo')
    values = found(run)
    assert values["disttrain_step"] == 2
    assert values["disttrain_last_step_timestamp_seconds"] == 17.5
    assert values["disttrain_validation_loss"] == 2.5
    assert values["disttrain_mfu"] == 0.25
    assert math.isnan(values["disttrain_loss"])
    assert "disttrain_tokens_per_second" not in values


def test_run_that_tells_no_loss_offers_none(tmp_path: Path) -> None:
    """A run whose records have no loss, as of a user's program that tells only its step, offers no
    loss instead of NaN.
    """
    run = config(tmp_path)
    path = run.run_dir / METRICS_FILE
    path.write_text('{"step": 1}\n{"step": 2}\n')
    assert found(run)["disttrain_step"] == 2
    assert "disttrain_loss" not in found(run)
    path.write_text('{"step": 1, "loss": 3.5}\n{"step": 2}\n')
    assert found(run)["disttrain_loss"] == 3.5


def test_slow_rank_is_offered_with_its_cause_while_it_is_slow(tmp_path: Path) -> None:
    run = config(tmp_path)
    slow = {"slow_rank": 2, "slow_cause": "data loading", "slow_factor": 1.7}
    network = {"slow_rank": None, "slow_cause": "the network", "slow_factor": 3.0}
    fast = {"slow_rank": None, "slow_cause": None, "slow_factor": None}
    for step, (record, labels) in enumerate(
        [
            (slow, [(1.7, {"rank": "2", "cause": "data loading"})]),
            (network, [(3.0, {"rank": "", "cause": "the network"})]),
            (fast, []),
        ]
    ):
        with (run.run_dir / METRICS_FILE).open("a") as file:
            file.write(json.dumps({"step": step, "loss": 3.0, **record}) + "\n")
        offered = [s for s in samples_of_files(run) if s.family == SLOW_RANK]
        assert [(sample.value, sample.labels) for sample in offered] == labels


def test_only_the_end_of_a_long_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / METRICS_FILE
    path.write_text("".join(f'{{"step": {step}}}\n' for step in range(10_000, 20_000)))
    monkeypatch.setattr(run_files, "_TAIL_BYTES", 100)
    steps = [record["step"] for record in last_records(path)]
    assert steps == list(range(20_000 - len(steps), 20_000))
    assert len(steps) == 100 // len('{"step": 10000}\n')


def test_newest_checkpoint_is_offered_and_parts_are_not(tmp_path: Path) -> None:
    """The newest complete checkpoint is offered, and no part of one."""
    run = config(tmp_path, interval=50)
    for name, second in (("step-00000100", 5), ("step-00000200", 9), (".tmp-step-00000300", 11)):
        (folder := run.run_dir / "checkpoints" / name).mkdir(parents=True)
        os.utime(folder, (second, second))
    values = found(run)
    assert values["disttrain_checkpoint_step"] == 200
    assert values["disttrain_checkpoint_timestamp_seconds"] == 9
    assert values["disttrain_checkpoint_interval_steps"] == 50


def test_checkpoint_that_is_removed_meanwhile_is_left_out(tmp_path: Path) -> None:
    """A checkpoint that is removed while the folder is read is left out. Otherwise the answer would
    be an error, and Prometheus would take the pod for dead.
    """
    run = config(tmp_path)
    folder = run.run_dir / "checkpoints"
    (folder / "step-00000200").mkdir(parents=True)
    for gone in ("step-00000100", "step-00000300"):
        (folder / gone).symlink_to("gone")  # it is listed, and is not there any more
    assert found(run)["disttrain_checkpoint_step"] == 200


def test_mirror_is_offered_where_there_is_one(tmp_path: Path) -> None:
    assert "disttrain_mirror_step" not in found(config(tmp_path))
    run = config(tmp_path, mirror="s3://bucket/runs")
    assert found(run)["disttrain_mirror_step"] == 0
    write_status(run.run_dir, MirrorStatus("s3://bucket/runs", 400, problem="it is away"))
    assert found(run)["disttrain_mirror_step"] == 400
    assert found(run)["disttrain_mirror_problem"] == 1

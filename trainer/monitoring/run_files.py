"""Reads samples for Prometheus from the files of a run.

Only the ends of growing files are read, so the work is the same on the first and the last day. A
number that is not in the files is left out, and no other number takes its place.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainer.config import RunConfig
from trainer.mirror.status import read_status
from trainer.monitoring import families as names
from trainer.monitoring.families import Family
from trainer.monitoring.text import Sample
from trainer.run_folder import METRICS_FILE

_TAIL_BYTES = 65536
_OF_A_RECORD: Mapping[str, Family] = {
    "step": names.STEP,
    "unix_time": names.LAST_STEP,
    "lr": names.LEARNING_RATE,
    "grad_norm": names.GRADIENT_NORM,
    "tokens": names.TOKENS,
    "tokens_per_second": names.TOKENS_PER_SECOND,
    "mfu": names.MFU,
    "data_wait_share": names.DATA_WAIT,
    "peak_memory_bytes": names.PEAK_MEMORY,
}
_QUANTILES = {"step_seconds_p50": "0.5", "step_seconds_p95": "0.95"}


def samples_of_files(config: RunConfig) -> Sequence[Sample]:
    """Return the samples from all files of the run.

    Raises:
        OSError: the volume cannot be read.
    """
    run_dir = config.run_dir
    found = _of_records(last_records(run_dir / METRICS_FILE))
    if not config.has_program:  # only a program knows its length and its checkpoints
        found.append(Sample(names.MAX_STEPS, config.train.max_steps))
        found += _of_checkpoints(run_dir / "checkpoints", config.checkpoint.interval)
    if config.checkpoint.mirror is not None:
        mirror = read_status(run_dir)
        found.append(Sample(names.MIRROR_STEP, mirror.newest_step or 0))
        found.append(Sample(names.MIRROR_PROBLEM, bool(mirror.problem)))
    if run_dir.exists():
        room = shutil.disk_usage(run_dir)
        found.append(Sample(names.VOLUME_FREE, room.free))
        found.append(Sample(names.VOLUME_SIZE, room.total))
    return found


def last_records(path: Path) -> list[dict[str, Any]]:
    """Return the complete records at the end of a metrics file, the oldest first.

    Only the last 64 KiB are read, so there are some hundreds of records at most.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return []
    whole = lines[1:-1] if size > _TAIL_BYTES else lines[:-1]
    records = list[dict[str, Any]]()
    for line in whole:
        try:
            record = dict(json.loads(line))
            record["step"] = int(record["step"])
            records.append(record)
        except (ValueError, TypeError, KeyError):  # damaged; the trainer reports it on resume
            continue
    return records


def _of_records(records: Sequence[Mapping[str, Any]]) -> list[Sample]:
    if not records:
        return []
    newest = records[-1]
    found = [
        Sample(family, float(newest[key]))
        for key, family in _OF_A_RECORD.items()
        if newest.get(key) is not None
    ]
    # The loss is null if it was not finite. Records of a user's own program may have none.
    told = [record["loss"] for record in records if "loss" in record]
    if told:
        found.append(Sample(names.LOSS, math.nan if told[-1] is None else float(told[-1])))
    evaluated = [r["val_loss"] for r in records if r.get("val_loss") is not None]
    if evaluated:
        found.append(Sample(names.VALIDATION_LOSS, float(evaluated[-1])))
    for key, quantile in _QUANTILES.items():
        if newest.get(key) is not None:
            found.append(Sample(names.STEP_SECONDS, float(newest[key]), {"quantile": quantile}))
    if newest.get("slow_factor") is not None:
        rank = newest.get("slow_rank")
        who = {"rank": "" if rank is None else str(rank), "cause": str(newest.get("slow_cause"))}
        found.append(Sample(names.SLOW_RANK, float(newest["slow_factor"]), who))
    return found


def _of_checkpoints(folder: Path, interval: int) -> list[Sample]:
    newest, saved_at = 0, None
    for path in folder.glob("step-*"):
        number = re.fullmatch(r"step-(\d+)", path.name)
        if number is not None and int(number[1]) >= newest:
            with suppress(FileNotFoundError):  # it was just removed, as old checkpoints are
                saved_at = path.stat().st_mtime
                newest = int(number[1])
    found = [Sample(names.CHECKPOINT_STEP, newest)]
    if saved_at is not None:
        found.append(Sample(names.CHECKPOINT_TIME, round(saved_at, 3)))
    if interval:
        found.append(Sample(names.CHECKPOINT_INTERVAL, interval))
    return found

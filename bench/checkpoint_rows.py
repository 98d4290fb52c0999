"""The rows about checkpoints: what they cost training, their speed, and the memory they take."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from bench.row import Row
from bench.runs import Bench

_EVERY, _PAIRS = 40, 30
_RANKS = 4
_DISK_PAIRS = 5


def checkpoints(bench: Bench) -> list[Row]:
    """What saves cost training: 40 steps that begin with a save against the 40 steps that follow.

    Both belong to one run, so that a busy machine slows both. A record is written before the save
    of its step, so the time until the next record contains all that the save takes.
    """
    settings = [
        f"--train.max_steps={2 * _EVERY * (_PAIRS + 1)}",
        "--eval.interval=0",
        f"--log.interval={_EVERY}",
        f"--checkpoint.interval={2 * _EVERY * 5 // 4}",  # saves come a fifth earlier
    ]
    config = bench.config("saving", settings)
    assert config.checkpoint.steps_between_saves == 2 * _EVERY
    records = [r for r in bench.train(config) if r["step"] >= 2 * _EVERY]  # after the warm-up
    times = [record["unix_time"] for record in records]
    with_save = [end - begin for begin, end in zip(times[0::2], times[1::2], strict=False)]
    without = [end - begin for begin, end in zip(times[1::2], times[2::2], strict=False)]
    losses = sorted(a / b - 1 for a, b in zip(with_save, without, strict=False))
    loss, quarter = statistics.median(losses), len(losses) // 4
    held = [1e3 * float(r["checkpoint_seconds"]) for r in records if r["checkpoint_seconds"]]
    return [
        Row(
            f"training with a checkpoint every {_EVERY} steps against none, one run",
            "<= 3 % of throughput",
            f"{loss:.1%} (half of the {len(losses)} pairs: {losses[quarter]:.1%} to "
            f"{losses[-1 - quarter]:.1%}); {1e3 * statistics.median(with_save) / _EVERY:.1f} "
            f"against {1e3 * statistics.median(without) / _EVERY:.1f} ms a step; training stands "
            f"still for {statistics.median(held):.1f} ms",
            loss <= 0.03,
        )
    ]


def checkpoint_io(bench: Bench) -> list[Row]:
    """Speed and memory of saving and loading 0.54 B parameters with Adam's state, on 4 ranks.

    `dd` writes as many bytes, in turn with the saves: once through the page cache with fsync, and
    once past it (oflag=direct). The faster of the two counts. The first pair is not counted: on a
    virtual disk the first use of a block can take longer than later uses.
    """
    directory = bench.root / "checkpoint-io"
    total = _RANKS * 16 * 100_000_000  # about as many bytes as the save has
    disk: list[float] = []
    rates: list[float] = []
    saved: list[dict[str, Any]] = []
    loaded: list[dict[str, Any]] = []
    try:
        for pair in range(_DISK_PAIRS + 1):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
            dd = max(_dd_bytes_per_second(directory, total, *o) for o in ([], ["oflag=direct"]))
            if pair > 0:
                disk.append(dd)
                saved = _ranks(bench, "save", directory)
                rates.append(_bytes_per_second(saved))
        loaded = _ranks(bench, "load", directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    ratios = sorted(rate / dd for rate, dd in zip(rates, disk, strict=True))
    ratio = statistics.median(ratios)
    what = f"{sum(rank['shard_bytes'] for rank in saved) / 1e9:.1f} GB on {_RANKS} ranks"
    return [
        Row(
            f"saving {what}, fsync and sha256 included, against the faster dd in turn",
            ">= 80 %",
            f"{ratio:.0%}, median of {_DISK_PAIRS} pairs: {ratios[0]:.0%} to {ratios[-1]:.0%} "
            f"({statistics.median(rates) / 1e9:.2f} GB/s; dd {statistics.median(disk) / 1e9:.2f}: "
            f"{min(disk) / 1e9:.2f} to {max(disk) / 1e9:.2f} GB/s)",
            ratio >= 0.8,
        ),
        _memory_row(f"peak memory of a rank that saves {what}", saved),
        Row(
            f"loading {what}, every byte verified first",
            "",
            f"{_bytes_per_second(loaded) / 1e9:.2f} GB/s",
            None,
        ),
        _memory_row(f"peak memory of a rank that loads {what}", loaded),
    ]


def _bytes_per_second(ranks: list[dict[str, Any]]) -> float:
    """The rate of all ranks together, until the last rank has ended."""
    seconds = max(rank["seconds"] for rank in ranks)
    return sum(rank["shard_bytes"] for rank in ranks) / seconds


def _memory_row(what: str, ranks: list[dict[str, Any]]) -> Row:
    worst = max(ranks, key=lambda rank: rank["peak_bytes"] - 1.5 * rank["shard_bytes"])
    peak, shard = worst["peak_bytes"], worst["shard_bytes"]
    return Row(
        what,
        "<= 1.5 x its shard + 1 GB",
        f"{peak / 1e9:.2f} GB, its shard being {shard / 1e9:.2f} GB",
        peak <= 1.5 * shard + 1e9,
    )


def _ranks(bench: Bench, what: str, directory: Path) -> list[dict[str, Any]]:
    arguments = ["-m", "bench.checkpoint_io", what, str(directory)]
    logs = bench.run_ranks(arguments, directory, _RANKS)
    return [json.loads(log.read_text().splitlines()[-1]) for log in logs]


def _dd_bytes_per_second(directory: Path, size_bytes: int, *options: str) -> float:
    file, block = directory / "dd", 8 << 20
    begin = time.perf_counter()
    try:
        subprocess.run(
            ["dd", "if=/dev/zero", f"of={file}", f"bs={block}", f"count={size_bytes // block}",
             "conv=fsync", "status=none", *options],
            check=True,
        )  # fmt: skip
        return size_bytes / (time.perf_counter() - begin)
    finally:
        file.unlink(missing_ok=True)

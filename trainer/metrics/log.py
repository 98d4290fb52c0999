"""Writes what a run measures to the log, metrics.jsonl and TensorBoard; only rank 0 does so."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainer.checkpoint.durable import fsync_directory, fsync_file, write_lines
from trainer.metrics.console import duration
from trainer.metrics.finite import finite_or_none
from trainer.metrics.speed import Speed
from trainer.run_folder import METRICS_FILE

TENSORBOARD_DIR = "tensorboard"
NO_CURVES = ("step", "unix_time", "world_size", "slow_rank", "slow_cause")


@dataclass(frozen=True)
class StepMetrics:
    """One record. Losses in nats per token, mean over the global batch; None: not measured.

    `grad_norm` is None for the updates that float16's gradient scaler skips.
    """

    step: int
    loss: float | None
    """None where it overflowed in float16 and the update was skipped."""
    val_loss: float | None
    val_bits_per_byte: float | None
    lr: float
    grad_norm: float | None
    skipped_updates: int
    """Updates since the start of the process that float16's gradient scaler skipped."""
    tokens_per_second: float
    """Of all ranks together, without evaluations and saves."""
    tokens_per_second_per_rank: float
    step_seconds: float
    step_seconds_p50: float
    step_seconds_p95: float
    mfu: float | None
    data_wait_share: float
    """Share of the step time in which the slowest rank put its batch together."""
    peak_memory_bytes: int
    """Of the rank that needs most: on a GPU its tensors, on a CPU the whole process."""
    checkpoint_seconds: float | None
    """How long saves since the last record held up training."""
    eta_seconds: float | None
    slow_rank: int | None
    """The rank that holds the others up (trainer/watch); None: nobody, or no single one."""
    slow_cause: str | None
    """What is slow; None while nothing is."""
    slow_factor: float | None
    """How many times as long as usual that takes."""
    tokens: int
    world_size: int
    unix_time: float

    @staticmethod
    def of(
        *,
        loss: float,
        grad_norm: float,
        speed: Speed,
        data_seconds: float,
        world_size: int,
        **others: Any,
    ) -> StepMetrics:
        """The record of a step that was just made; `others` are taken as they are.

        `data_seconds`: what the slowest rank needed per step to put its batches together.
        """
        return StepMetrics(
            loss=finite_or_none(loss),
            grad_norm=finite_or_none(grad_norm),
            tokens_per_second=speed.tokens_per_second,
            tokens_per_second_per_rank=speed.tokens_per_second / world_size,
            step_seconds=speed.step_seconds,
            step_seconds_p50=speed.step_seconds_p50,
            step_seconds_p95=speed.step_seconds_p95,
            mfu=speed.mfu,
            data_wait_share=data_seconds / speed.step_seconds,
            world_size=world_size,
            unix_time=time.time(),
            **others,
        )

    def line(self, max_steps: int) -> str:
        """The record for people."""
        return f"step {self.step}/{max_steps} {self.summary()}"

    def summary(self) -> str:
        """The record for people, without the step."""
        loss = "-" if self.loss is None else f"{self.loss:.4f}"
        val = "-" if self.val_loss is None else f"{self.val_loss:.4f}"
        grad_norm = "-" if self.grad_norm is None else f"{self.grad_norm:.3f}"
        mfu = "n/a" if self.mfu is None else f"{self.mfu:.1%}"
        return (
            f"loss {loss} val {val} lr {self.lr:.1e} "
            f"tokens/s {self.tokens_per_second:.0f} grad_norm {grad_norm} mfu {mfu} "
            f"p50 {self.step_seconds_p50 * 1e3:.1f}ms p95 {self.step_seconds_p95 * 1e3:.1f}ms "
            f"data {self.data_wait_share:.1%} mem {self.peak_memory_bytes / 2**20:.0f}MiB "
            f"eta {duration(self.eta_seconds)}"
        )


class MetricsLog:
    """Appends records; after a resume, what was recorded past the checkpoint is dropped."""

    def __init__(self, run_dir: Path, resumed_step: int, say: Callable[[str], None]):
        """`say` is told of lines that are damaged; they are left out."""
        from torch.utils.tensorboard import SummaryWriter

        self._path = run_dir / METRICS_FILE
        damaged = 0

        def kept() -> Iterator[bytes]:  # never all at once: a long run has millions
            nonlocal damaged
            for line, record in _lines(self._path):
                damaged += record is None
                if record is not None and record["step"] <= resumed_step:
                    yield line

        write_lines(self._path, kept())
        if damaged:
            say(f"warning: {self._path} has {damaged} damaged line(s), which are left out")
        self._file = self._path.open("a")
        self._tensorboard = SummaryWriter(
            str(run_dir / TENSORBOARD_DIR), purge_step=resumed_step + 1
        )

    def record(self, metrics: StepMetrics) -> None:
        """Append one record."""
        values = asdict(metrics)
        self._file.write(json.dumps(values, allow_nan=False) + "\n")
        self._file.flush()
        for name, value in values.items():
            if name not in NO_CURVES and value is not None:
                self._tensorboard.add_scalar(name, value, metrics.step)

    def add_validation(
        self, step: int, val_loss: float | None, val_bits_per_byte: float | None
    ) -> None:
        """Complete the record of `step`, whose evaluation was cut off; None: it overflowed."""
        values = {"val_loss": val_loss, "val_bits_per_byte": val_bits_per_byte}

        def completed() -> Iterator[bytes]:
            for line, record in _lines(self._path):
                if record is not None and record["step"] == step:
                    yield json.dumps({**record, **values}, allow_nan=False).encode() + b"\n"
                else:
                    yield line

        self._file.close()
        write_lines(self._path, completed())
        self._file = self._path.open("a")
        for name, value in values.items():
            if value is not None:
                self._tensorboard.add_scalar(name, value, step)

    def flush(self) -> None:
        """Hand everything to the system, from where `sync_metrics` brings it to the disk."""
        self._file.flush()
        self._tensorboard.flush()

    def close(self) -> None:
        """Write out everything."""
        self._file.close()
        self._tensorboard.close()


def sync_metrics(run_dir: Path) -> None:
    """Make durable what a `MetricsLog` has flushed, so that no checkpoint outlives its metrics.

    Without this a machine that is lost right after a save would leave a gap in the curves: the run
    continues after the checkpoint. Any thread may call it.

    Args:
        run_dir: the folder of the run; of TensorBoard's files only the newest one is written.

    Raises:
        OSError: a file could not be written to the disk.
    """
    with suppress(FileNotFoundError):  # somebody may have removed a file
        fsync_file(run_dir / METRICS_FILE)
    curves = run_dir / TENSORBOARD_DIR
    with suppress(FileNotFoundError):
        newest = max(curves.glob("events.*"), key=lambda path: path.stat().st_mtime, default=None)
        if newest is not None:
            fsync_file(newest)
            fsync_directory(curves)


def read_records(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The records of a metrics file, and how many lines inside it are damaged.

    A crash may have cut the last line, which counts as not written.
    """
    records = [record for _, record in _lines(path)]
    whole = [record for record in records if record is not None]
    return whole, len(records) - len(whole)


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """The lines of a metrics file with their records; None: the line is damaged."""
    with suppress(FileNotFoundError), path.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n") or line == b"\n":
                continue
            try:
                record = dict(json.loads(line))
                int(record["step"])
            except (ValueError, TypeError, KeyError):
                record = None
            yield line, record

"""Writes the metrics of a run as log lines, to metrics.jsonl and to TensorBoard, on rank 0."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainer.checkpoint.durable import fsync_directory, fsync_file, write_lines
from trainer.metrics.console import duration
from trainer.metrics.curves import Curves, current_file
from trainer.metrics.finite import finite_or_none
from trainer.metrics.records_file import RecordsFile
from trainer.metrics.speed import Speed
from trainer.run_folder import METRICS_FILE

TENSORBOARD_DIR = "tensorboard"
NO_CURVES = ("step", "unix_time", "world_size", "slow_rank", "slow_cause")


@dataclass(frozen=True)
class StepMetrics:
    """One record of the metrics.

    Losses are in nats per token. `loss` is the mean over the global batch. None stands for a value
    that was not measured. `grad_norm` is None for an update that float16's gradient scaler skips.
    """

    step: int
    loss: float | None
    """It is None if it overflowed in float16 and the update was skipped."""
    val_loss: float | None
    val_bits_per_byte: float | None
    lr: float
    grad_norm: float | None
    skipped_updates: int
    """The updates since the start of the process that float16's gradient scaler skipped."""
    tokens_per_second: float
    """The throughput of all ranks together, without evaluations and saves."""
    tokens_per_second_per_rank: float
    step_seconds: float
    step_seconds_p50: float
    step_seconds_p95: float
    mfu: float | None
    data_wait_share: float
    """The share of the step time in which the slowest rank waited for its batches."""
    peak_memory_bytes: int
    """The memory of the rank that needs most: of its tensors on a GPU, else of its process."""
    checkpoint_seconds: float | None
    """How long saves have held up training since the previous record."""
    eta_seconds: float | None
    slow_rank: int | None
    """The rank that holds the others up (trainer/watch), or None if no single rank does."""
    slow_cause: str | None
    """The cause of the slowness, or None if nothing is slow."""
    slow_factor: float | None
    """How many times as long as usual the slow part takes."""
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
        """Make the record of a step that was just made.

        `data_seconds` is the time per step that the slowest rank waited for its batches. `others`
        are the remaining fields, which are not changed.
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
        """Return the record as a line for the log."""
        return f"step {self.step}/{max_steps} {self.summary()}"

    def summary(self) -> str:
        """Return the record as a text for users, without the step."""
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
    """Appends records to metrics.jsonl and TensorBoard.

    When a run resumes, the records of steps after its checkpoint are dropped. A thread writes the
    records, so training goes on while the volume does not answer: the other ranks would wait for
    rank 0, and end the round. If the volume fails for a while, there is a warning.
    """

    def __init__(self, run_dir: Path, resumed_step: int, say: Callable[[str], None]):
        """Open the files. Damaged lines are dropped, and `say` prints a warning about them.

        Raises:
            OSError: A file cannot be read or written.
        """
        self._path = run_dir / METRICS_FILE
        damaged = 0

        def kept() -> Iterator[bytes]:  # one at a time: a long run has millions
            nonlocal damaged
            for line, record in _lines(self._path):
                damaged += record is None
                if record is not None and record["step"] <= resumed_step:
                    yield line

        write_lines(self._path, kept())
        if damaged:
            say(f"warning: {self._path} has {damaged} damaged line(s), which are left out")
        self._file = RecordsFile(self._path, say)
        self._curves = Curves(run_dir / TENSORBOARD_DIR, resumed_step + 1, say)
        self._threads = ThreadPoolExecutor(1, "metrics")
        self._newest: Future[None] | None = None

    def record(self, metrics: StepMetrics) -> None:
        """Append one record soon."""
        if self._newest is not None and self._newest.done():
            self._newest.result()  # raises an error of the last record, unless it is the volume's
        self._newest = self._threads.submit(self._record, metrics)

    def _record(self, metrics: StepMetrics) -> None:
        values = asdict(metrics)
        self._file.append(json.dumps(values, allow_nan=False).encode() + b"\n")
        for name, value in values.items():
            if name not in NO_CURVES and value is not None:
                self._curves.add(name, value, metrics.step)

    def add_validation(
        self, step: int, val_loss: float | None, val_bits_per_byte: float | None
    ) -> None:
        """Add the losses to the record of `step`, whose evaluation was cut off by a stop.

        Call this before the first call of `record`. None stands for a loss that overflowed.

        Raises:
            OSError: The file of the records cannot be read or written.
        """
        values = {"val_loss": val_loss, "val_bits_per_byte": val_bits_per_byte}

        def completed() -> Iterator[bytes]:
            for line, record in _lines(self._path):
                if record is not None and record["step"] == step:
                    yield json.dumps({**record, **values}, allow_nan=False).encode() + b"\n"
                else:
                    yield line

        self._file.close()
        write_lines(self._path, completed())
        for name, value in values.items():
            if value is not None:
                self._curves.add(name, value, step)

    def sync(self) -> None:
        """Make durable what was recorded so far. Any thread may call this.

        Without it, the curves would have a gap after a machine is lost right after a save, because
        the run continues after the checkpoint.

        Raises:
            OSError: A file could not be written to the disk.
        """
        for write in (self._file.flush, self._curves.flush):
            self._threads.submit(write).result()  # This waits for the records before it.
        sync_metrics(self._path.parent)

    def close(self) -> None:
        """Write everything to the files, and close them."""
        self._threads.shutdown()  # This waits for the records.
        self._file.close()
        self._curves.close()
        if self._newest is not None:
            self._newest.result()


def sync_metrics(run_dir: Path) -> None:
    """Make durable what this process has written to the files of the metrics.

    Args:
        run_dir: The folder of the run. Of TensorBoard's files, only the one that this process
            writes now is made durable.

    Raises:
        OSError: A file could not be written to the disk.
    """
    with suppress(FileNotFoundError):  # A user may have removed a file.
        fsync_file(run_dir / METRICS_FILE)
    curves = run_dir / TENSORBOARD_DIR
    with suppress(FileNotFoundError):
        if (current := current_file(curves)) is not None:
            fsync_file(current)
            fsync_directory(curves)


def read_records(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Read the records of a metrics file, and count its damaged lines.

    A last line without an end, which a crash may leave, is ignored and not counted.
    """
    records = [record for _, record in _lines(path)]
    whole = [record for record in records if record is not None]
    return whole, len(records) - len(whole)


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """Yield the lines of a metrics file, each with its record, or None if it is damaged."""
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

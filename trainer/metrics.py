"""What a run records: plain log lines, metrics.jsonl and TensorBoard. Only rank 0 records."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from trainer.console import duration
from trainer.durable import write_text

METRICS_FILE = "metrics.jsonl"
TENSORBOARD_DIR = "tensorboard"


@dataclass(frozen=True)
class StepMetrics:
    """One record. Losses in nats per token, mean over the global batch; None: not measured.

    `grad_norm` is None for the updates that float16's gradient scaler skips.
    """

    step: int
    loss: float
    val_loss: float | None
    val_bits_per_byte: float | None
    lr: float
    grad_norm: float | None
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
    tokens: int
    world_size: int
    unix_time: float

    def line(self, max_steps: int) -> str:
        """The record for people."""
        return f"step {self.step}/{max_steps} {self.summary()}"

    def summary(self) -> str:
        """The same without the step."""
        val = "-" if self.val_loss is None else f"{self.val_loss:.4f}"
        grad_norm = "-" if self.grad_norm is None else f"{self.grad_norm:.3f}"
        mfu = "n/a" if self.mfu is None else f"{self.mfu:.1%}"
        return (
            f"loss {self.loss:.4f} val {val} lr {self.lr:.1e} "
            f"tokens/s {self.tokens_per_second:.0f} grad_norm {grad_norm} mfu {mfu} "
            f"p50 {self.step_seconds_p50 * 1e3:.1f}ms p95 {self.step_seconds_p95 * 1e3:.1f}ms "
            f"data {self.data_wait_share:.1%} mem {self.peak_memory_bytes / 2**20:.0f}MiB "
            f"eta {duration(self.eta_seconds)}"
        )


class MetricsLog:
    """Appends records; after a resume, what was recorded past the checkpoint is dropped."""

    def __init__(self, run_dir: Path, resumed_step: int):
        from torch.utils.tensorboard import SummaryWriter

        self._path = run_dir / METRICS_FILE
        kept = [line for line in self._lines() if json.loads(line)["step"] <= resumed_step]
        write_text(self._path, "".join(f"{line}\n" for line in kept))
        self._file = self._path.open("a")
        self._tensorboard = SummaryWriter(
            str(run_dir / TENSORBOARD_DIR), purge_step=resumed_step + 1
        )

    def _lines(self) -> list[str]:
        """The complete lines of the file; a crash may have cut the last one."""
        if not self._path.exists():
            return []
        return [line for line in self._path.read_text().split("\n")[:-1] if line]

    def record(self, metrics: StepMetrics) -> None:
        """Append one record."""
        values = asdict(metrics)
        self._file.write(json.dumps(values, allow_nan=False) + "\n")
        self._file.flush()
        for name, value in values.items():
            if name not in ("step", "unix_time", "world_size") and value is not None:
                self._tensorboard.add_scalar(name, value, metrics.step)

    def add_validation(self, step: int, val_loss: float, val_bits_per_byte: float) -> None:
        """Complete the record of `step`, whose evaluation was cut off."""
        values = {"val_loss": val_loss, "val_bits_per_byte": val_bits_per_byte}
        lines = self._lines()
        for place, record in enumerate(map(json.loads, lines)):
            if record["step"] == step:
                lines[place] = json.dumps({**record, **values}, allow_nan=False)
        self._file.close()
        write_text(self._path, "".join(f"{line}\n" for line in lines))
        self._file = self._path.open("a")
        for name, value in values.items():
            self._tensorboard.add_scalar(name, value, step)

    def flush(self) -> None:
        """Hand everything to the system, so that a checkpoint never has older metrics."""
        self._file.flush()
        self._tensorboard.flush()

    def close(self) -> None:
        """Write out everything."""
        self._file.close()
        self._tensorboard.close()

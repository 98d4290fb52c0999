"""What a run records: plain log lines, metrics.jsonl and TensorBoard. Only rank 0 records."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import json
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from trainer.durable import write_text

METRICS_FILE = "metrics.jsonl"
TENSORBOARD_DIR = "tensorboard"

# Dense fp16/bf16 tensor-core peaks in TFLOP/s with fp32 accumulation, from NVIDIA's data sheets.
_PEAK_TFLOPS = (
    (r"A10G", 70.0),
    (r"A10", 125.0),
    (r"A30", 165.0),
    (r"A40", 149.7),
    (r"A100", 312.0),
    (r"L4", 121.0),
    (r"T4", 65.0),
    (r"H100 PCIe", 756.0),
    (r"H100 NVL", 835.0),
    (r"H100", 989.0),
    (r"H200", 989.0),
    (r"RTX 3090", 71.0),
    (r"RTX 4090", 165.2),
)


def peak_flops(device_name: str, dtype: torch.dtype) -> float | None:
    """Peak FLOP/s of a GPU by its name, or None where it is not known for this arithmetic."""
    if dtype == torch.float32:
        return None
    for name, tflops in _PEAK_TFLOPS:
        if re.search(rf"\b{name}\b", device_name):
            return tflops * 1e12
    return None


@dataclass(frozen=True)
class Speed:
    """Throughput of all ranks together; `mfu` is the share of the GPUs' peak, None if unknown."""

    tokens_per_second: float
    step_seconds: float
    mfu: float | None


class Speedometer:
    """Measures training alone: what happens between `stop` and `start` does not count."""

    def __init__(
        self, tokens_per_step: int, flops_per_token: int, peak: float | None, world_size: int
    ):
        self._tokens_per_step = tokens_per_step
        self._flops_per_token = flops_per_token
        self._peak = peak and peak * world_size
        self._step, self._time = 0, 0.0

    def start(self, step: int) -> None:
        """Begin to measure, after `step` steps."""
        self._step, self._time = step, time.perf_counter()

    def stop(self, step: int) -> Speed:
        """The mean speed since `start`."""
        assert step > self._step
        seconds = (time.perf_counter() - self._time) / (step - self._step)
        tokens_per_second = self._tokens_per_step / seconds
        mfu = self._peak and tokens_per_second * self._flops_per_token / self._peak
        return Speed(tokens_per_second, seconds, mfu)


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
    step_seconds: float
    mfu: float | None
    tokens: int
    world_size: int
    unix_time: float

    def line(self, max_steps: int) -> str:
        """The record for people."""
        val = "-" if self.val_loss is None else f"{self.val_loss:.4f}"
        grad_norm = "-" if self.grad_norm is None else f"{self.grad_norm:.3f}"
        mfu = "n/a" if self.mfu is None else f"{self.mfu:.1%}"
        return (
            f"step {self.step}/{max_steps} loss {self.loss:.4f} val {val} lr {self.lr:.1e} "
            f"tokens/s {self.tokens_per_second:.0f} grad_norm {grad_norm} mfu {mfu}"
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

    def close(self) -> None:
        """Write out everything."""
        self._file.close()
        self._tensorboard.close()

"""Draws the loss and the throughput of a run, or the losses of several runs."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainer.launch.exit_codes import FatalError
from trainer.metrics.log import read_records
from trainer.run_folder import METRICS_FILE

PLOT_FILE = "plot.png"
STANDARD_OUTPUT = Path("-")
_TRAIN, _VAL, _SPEED = "#9db8d2", "#c0392b", "#2c7a4b"


def plot(run_dir: Path, output: Path | None = None) -> Path:
    """Draw metrics.jsonl of `run_dir` into `output` (default `<run_dir>/plot.png`).

    The metrics of a user's own program hold only steps and losses, so its picture has no part for
    the throughput.

    Raises:
        FatalError: There are no metrics, or the picture cannot be written.
    """
    records = _read_records(run_dir)
    target = output or run_dir / PLOT_FILE
    # The import is here because only this command needs matplotlib. Its object interface needs no
    # display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 7), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    speed_steps, speeds = _series(records, "tokens_per_second")
    if speeds:
        loss, speed = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
        median = sorted(speeds)[len(speeds) // 2]
        speed.plot(speed_steps, speeds, color=_SPEED, linewidth=1)
        speed.axhline(median, color=_SPEED, linestyle=":", label=f"median {median:,.0f}")
        speed.set_ylim(bottom=0)
        speed.set_ylabel("tokens per second")
        speed.legend(frameon=False, loc="lower right")
    else:
        loss = figure.subplots()
    loss.plot(*_series(records, "loss"), color=_TRAIN, linewidth=1, label="train")
    steps, values = _series(records, "val_loss")
    if steps:
        label = f"validation, lowest {min(values):.4f} at step {steps[values.index(min(values))]}"
        loss.plot(steps, values, color=_VAL, marker="o", markersize=4, label=label)
    loss.set_ylabel("loss (nats per token)")
    tokens = f": {records[-1]['tokens']:,} tokens" if "tokens" in records[-1] else ""
    loss.set_title(f"{run_dir.resolve().name}{tokens}")
    loss.legend(frameon=False)
    figure.axes[-1].set_xlabel("step")
    for axes in figure.axes:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    _save(figure, target, "png")
    return target


def plot_losses(run_dirs: Sequence[Path], output: Path) -> Path:
    """Draw the losses of several runs into one SVG picture, and return `output`.

    Args:
        run_dirs: The folders of the runs. The name of each folder is its label.
        output: The file for the picture, or `-` for standard output.

    Raises:
        FatalError: A run has no metrics, or the picture cannot be written.
    """
    series = [(run_dir.resolve().name, _read_records(run_dir)) for run_dir in run_dirs]
    from matplotlib import rcParams
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    rcParams["svg.fonttype"] = "none"  # Text stays text, which makes small files.
    rcParams["svg.hashsalt"] = "disttrain"  # The same runs give the same bytes.
    figure = Figure(figsize=(9, 5), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots()
    for number, (name, records) in enumerate(series):
        colour = f"C{number}"
        axes.plot(*_series(records, "loss"), color=colour, linewidth=1, alpha=0.5, label=name)
        steps, values = _series(records, "val_loss")
        if steps:
            label = f"{name}, validation, lowest {min(values):.4f}"
            axes.plot(steps, values, color=colour, marker="o", markersize=4, label=label)
    axes.set_ylabel("loss (nats per token)")
    axes.set_xlabel("step")
    axes.legend(frameon=False)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, output, "svg")
    return output


def _save(figure: Any, target: Path, kind: str) -> None:
    content = io.BytesIO()
    figure.savefig(content, format=kind, metadata={"Date": None} if kind == "svg" else None)
    try:
        if target == STANDARD_OUTPUT:
            sys.stdout.buffer.write(content.getvalue())
        else:
            target.write_bytes(content.getvalue())
    except OSError as error:
        raise FatalError(f"--output {target}: cannot be written: {error}") from error


def _series(records: list[dict[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """Return the steps and values of the records in which `name` was measured."""
    found = [(r["step"], r[name]) for r in records if r.get(name) is not None]
    return [step for step, _ in found], [value for _, value in found]


def _read_records(run_dir: Path) -> list[dict[str, Any]]:
    path = run_dir / METRICS_FILE
    try:
        path.stat()
        records, damaged = read_records(path)
    except OSError as error:
        raise FatalError(f"{run_dir}: no metrics: {path} cannot be read: {error}") from error
    if damaged and not records:
        raise FatalError(f"{path}: damaged: none of its lines can be read. Name another run")
    if damaged:  # The trainer does the same when it continues.
        print(f"{path} has {damaged} damaged line(s), which are left out", file=sys.stderr)
    if not records:
        raise FatalError(f"{path}: no record yet; the first comes after step 1")
    return records

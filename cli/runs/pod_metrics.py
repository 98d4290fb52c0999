"""Reads the file with the values that a run has recorded at its steps.

This is a part of the program that pod_program.py describes.
"""

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cli.runs.pod_alive import alive

METRICS = ("step", "loss", "val_loss", "tokens", "tokens_per_second", "world_size")


def metrics(path: Path) -> dict[str, object]:
    """Return the last values in a metrics file, and the lowest validation loss."""
    last: dict[str, float | int | None] = dict.fromkeys(METRICS)
    lowest: tuple[float, int] | None = None
    for step, record in records(path):
        values = {name: number(record.get(name)) for name in METRICS}
        val_loss = values["val_loss"]
        if val_loss is not None and (lowest is None or val_loss < lowest[0]):
            lowest = val_loss, step
        last.update({name: value for name, value in values.items() if value is not None})
    best, best_step = lowest or (None, None)
    return {**last, "lowest_val_loss": best, "lowest_val_loss_step": best_step}


def number(value: object) -> float | int | None:
    """Return the value if it is a finite number, else None; the file may contain anything."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None


def records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each record of a metrics file with its step; nothing if there is no file."""
    told = time.monotonic()
    try:
        with path.open("rb") as file:
            for line in file:
                told = alive(told)
                try:
                    record = dict(json.loads(line))
                    yield int(record["step"]), record
                except (ValueError, TypeError, KeyError, OverflowError):
                    continue  # the last line may be incomplete while the run writes it
    except OSError:
        return

"""Run reports like those of a pod that reads the volume, for tests."""

from typing import Any


def given(name: str, **changes: Any) -> dict[str, Any]:
    """Return what the pod reports about a run of this name, with these changes."""
    values: dict[str, Any] = {
        "name": name,
        "config": "train:\n  max_steps: 2000\n",
        "bytes": 12_345_678,
        "checkpoint_step": 1000,
        "checkpoint_time": 940.0,
        "is_done": False,
        "step": 1200,
        "loss": 1.25,
        "val_loss": 1.5,
        "tokens": 1_228_800,
        "tokens_per_second": 4593.4,
        "world_size": 3,
        "lowest_val_loss": 1.4,
        "lowest_val_loss_step": 800,
        "problem": "",
    }
    return {**values, **changes}

"""Starts a run as in a new pod: `python -m tests.gpu.new_pod DEVICE FOLDER KEEPS STEPS`.

It trains with compilation, and prints torch's counters of its caches and all losses so far.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from torch._dynamo.utils import counters

from tests.gpu.place import Place, losses

CHECKOUT = Path(__file__).resolve().parents[2]
TRIAL = 1
"""How many graphs each start compiles before there is a model (trainer/parallel/device.py)."""


def start_in_new_pod(
    place: Place, pod: str, keeps: bool, steps: int
) -> tuple[dict[str, int], list[float]]:
    """Continue the run `run` up to step `steps`, with caches of compiled code that only `pod` has.

    Returns:
        torch's counters of its caches, and the losses of all steps so far.
    """
    cache = place.root / pod
    folders = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")}
    settings = (place.device, str(place.root), "kept" if keeps else "lost", str(steps))
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.new_pod", *settings],
        cwd=CHECKOUT,
        env={**os.environ, **folders},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found, all_losses = json.loads(done.stdout.splitlines()[-1])
    return found, all_losses


def _train(device: str, folder: str, keeps: str, steps: str) -> None:
    place = Place(device, Path(folder))
    place.root.mkdir(exist_ok=True)
    run = place.config(
        "run",
        model__n_layer=1,
        train__compile="on",
        train__keep_compiled=keeps == "kept",
        train__max_steps=int(steps),
        train__decay_steps=9,
    )
    records = place.train(run)
    print(json.dumps([counters["inductor"], losses(records)]))


if __name__ == "__main__":
    _train(*sys.argv[1:])

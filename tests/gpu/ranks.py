"""Checks that a waiting spare touches no GPU, and that a rank measures the times of its GPU."""

# pyright: reportUnknownMemberType=false
from __future__ import annotations

import importlib
import statistics
import time

import torch

from tests.gpu.place import NotHereError, Place, contexts
from trainer.launch.spare import NEEDED
from trainer.watch.laps import Part, laps_on

_SLEEP_SECONDS = 0.02
_STEPS = 5


def a_waiting_spare_touches_no_gpu(place: Place) -> str:
    """A spare makes no context, which would hold hundreds of megabytes of a GPU."""
    if not torch.cuda.is_available():
        raise NotHereError("there is no GPU that could be touched")
    for module in NEEDED:
        importlib.import_module(module)
    touched = contexts()
    assert not touched, f"what a spare imports has made contexts on GPUs {touched}"
    return "no context after all that a spare imports"


def a_laps_time_is_the_devices_own(place: Place) -> str:
    """A rank measures how long the GPU works on a lap, and not how long the host does.

    Slow ranks are found by these times. The host is done long before the GPU.
    """
    device = torch.device(place.device)
    size, repeats = (8192, 20) if device.type == "cuda" else (512, 20)
    matrix, result = torch.randn(size, size, device=device), torch.empty(size, size, device=device)

    def work() -> None:
        for _ in range(repeats):
            torch.mm(matrix, matrix, out=result)

    def wait_for_device() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    work()
    wait_for_device()
    laps, queued, worked = laps_on(device), list[float](), list[float]()
    for _ in range(_STEPS):
        laps.begin_step()
        time.sleep(_SLEEP_SECONDS)
        laps.lap(Part.DATA)
        begin = time.perf_counter()
        work()
        queued.append(time.perf_counter() - begin)
        laps.lap(Part.COMPUTE)
        laps.end_step(Part.WAIT)
        wait_for_device()
        worked.append(time.perf_counter() - begin)
    steps = laps.cut() or laps.cut()  # On a GPU, the times come with the next call.
    assert len(steps) == _STEPS, f"{_STEPS} steps, and {len(steps)} are told"
    data = statistics.median(step[Part.DATA] for step in steps)
    assert data >= 0.9 * _SLEEP_SECONDS, f"{data} s for the data, which took {_SLEEP_SECONDS} s"
    share = statistics.median(
        step[Part.COMPUTE] / seconds for step, seconds in zip(steps, worked, strict=True)
    )
    assert 0.5 <= share <= 1.01, f"{share:.0%} of the time of the kernels is told"
    host = statistics.median(a / b for a, b in zip(queued, worked, strict=True))
    if device.type == "cuda":
        assert host <= 0.5, f"the host needs {host:.0%} of the time: that shows nothing"
    return f"{share:.0%} of the kernels' time is told; the host was done after {host:.0%}"


CHECKS = (a_waiting_spare_touches_no_gpu, a_laps_time_is_the_devices_own)

"""Checks, before the first step, that each device computes correctly and all-reduces are correct.

Rank 0 writes the time of an all-reduce of each size to `smoke-test.json` in the run's folder.
`./disttrain verify` shows these times.
"""

# pyright: reportUnknownMemberType=false, reportPrivateImportUsage=false
from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist

from trainer.checkpoint.durable import write_text
from trainer.launch.exit_codes import FatalError
from trainer.parallel.device import Compute
from trainer.parallel.world import World

FILE = "smoke-test.json"
KIB, MIB = 1 << 10, 1 << 20
SIZES_BYTES = {
    "cpu": (4 * KIB, 256 * KIB, 16 * MIB),
    "cuda": (4 * KIB, 1 * MIB, 16 * MIB, 256 * MIB),
}
REPEATS = 5
# The width of the matrices. float16 and bfloat16 hold the numbers in their product exactly.
_WIDTH = 256


@dataclass(frozen=True)
class Rate:
    """The speed of an all-reduce of float32 numbers over all ranks.

    Args:
        size_bytes: The size of the tensor on each rank.
        seconds: The median time of `REPEATS` all-reduces, on the slowest rank.
        bus_bytes_per_second: `2 (n - 1) / n * size_bytes / seconds` with n ranks. This is the speed
            of each rank's connection, and can be compared between different numbers of ranks
            (NVIDIA's nccl-tests, doc/PERFORMANCE.md, "Bus Bandwidth").
    """

    size_bytes: int
    seconds: float
    bus_bytes_per_second: float


def smoke_test(
    world: World, compute: Compute, run_dir: Path, say: Callable[[str], None]
) -> tuple[Rate, ...]:
    """Check every rank's device, then the sums over all ranks. All ranks must call it.

    Args:
        world: The ranks, which are connected.
        compute: The device and the arithmetic of this rank.
        run_dir: The folder of the run, into which rank 0 writes the result.
        say: Shows a line. Only rank 0 calls it.

    Returns:
        The rate for each size, or nothing if there is no process group.

    Raises:
        FatalError: A device or a sum is wrong. All ranks raise it, and the text names the ranks
            that failed.
    """
    _stop_if_any_failed(world, "computes wrongly", device_problem(compute))
    rates = list[Rate]()
    for size_bytes in SIZES_BYTES[compute.device.type] if world.has_group else ():
        rate, problem = _measure(world, compute.device, size_bytes)
        _stop_if_any_failed(world, "got a wrong sum over all ranks", problem)
        rates.append(rate)
    if world.is_main:
        content = {
            "at": time.time(),
            "world_size": world.size,
            "backend": compute.backend,
            "device": compute.device_name,
            "all_reduce": [asdict(rate) for rate in rates],
        }
        run_dir.mkdir(parents=True, exist_ok=True)
        write_text(run_dir / FILE, json.dumps(content))
        say(describe(rates, world.size, compute))
    return tuple(rates)


def describe(rates: Sequence[Rate], world_size: int, compute: Compute) -> str:
    """Describe the result in one line for the log."""
    if not rates:
        return f"smoke test: {compute.device_name} computes rightly; there is one rank"
    each = ", ".join(
        f"{size(rate.size_bytes)} in {rate.seconds * 1e3:.3g} ms "
        f"({rate.bus_bytes_per_second / 1e9:.3g} GB/s)"
        for rate in rates
    )
    return f"smoke test: all-reduce over {world_size} ranks by {compute.backend}: {each}"


def size(count_bytes: int) -> str:
    """Format a size, for example as `4 KiB` or `16 MiB`."""
    unit, word = (MIB, "MiB") if count_bytes >= MIB else (KIB, "KiB")
    return f"{count_bytes // unit} {word}"


def device_problem(compute: Compute) -> str:
    """Multiply two small matrices of ones. Return what is wrong with the product, or ''."""
    try:
        ones = torch.ones(_WIDTH, _WIDTH, dtype=compute.dtype, device=compute.device)
        wrong = int((ones @ ones != _WIDTH).sum())
    except RuntimeError as error:  # for example "no kernel image is available for execution"
        return str(error).strip().partition("\n")[0]
    return f"{wrong} of {_WIDTH**2} products of ones are wrong" if wrong else ""


def _measure(world: World, device: torch.device, size_bytes: int) -> tuple[Rate, str]:
    """Return the rate, and what is wrong with the sum; '' if the sum is correct."""
    count, seconds, problem = size_bytes // 4, list[float](), ""
    expected = world.size * (world.size + 1) / 2
    for repeat in range(1 + REPEATS):
        tensor = torch.full((count,), float(world.rank + 1), device=device)
        world.barrier()
        _wait_for(device)
        begin = time.monotonic()
        dist.all_reduce(tensor)
        _wait_for(device)
        if repeat:  # The first one also sets up connections.
            seconds.append(time.monotonic() - begin)
        wrong = int((tensor != expected).sum())
        if wrong:
            problem = f"{wrong} of {count} numbers of an all-reduce are not {expected:g}"
    (slowest,) = world.max([median(seconds)])
    per_byte = 2 * (world.size - 1) / world.size
    return Rate(size_bytes, slowest, per_byte * size_bytes / slowest), problem


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _stop_if_any_failed(world: World, what: str, problem: str) -> None:
    problems = world.gather_objects(problem)
    faults = [f"rank {rank} {what}: {text}" for rank, text in enumerate(problems) if text]
    if faults:
        raise FatalError(f"smoke test: {'; '.join(faults)}")

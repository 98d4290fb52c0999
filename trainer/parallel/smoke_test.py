"""Before the first step: every rank's device computes, and all ranks together add up rightly.

What the all-reduce takes for each size goes into `smoke-test.json` of the run's folder.
`./disttrain verify` shows it.
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
_WIDTH = 256  # of the matrices; float16 and bfloat16 hold their products without rounding


@dataclass(frozen=True)
class Rate:
    """An all-reduce of float32 numbers over all ranks.

    Args:
        size_bytes: of the tensor on each rank.
        seconds: the median of some repetitions, on the slowest rank.
        bus_bytes_per_second: `2 (n - 1) / n * size_bytes / seconds`, the speed that each rank's
            connection needs for it, whatever the number of ranks n (NVIDIA's nccl-tests,
            doc/PERFORMANCE.md, "Bus Bandwidth").
    """

    size_bytes: int
    seconds: float
    bus_bytes_per_second: float


def smoke_test(
    world: World, compute: Compute, run_dir: Path, say: Callable[[str], None]
) -> tuple[Rate, ...]:
    """Check every rank's device, then the sums of all ranks. All ranks must call it.

    Args:
        world: the ranks, which are connected.
        compute: what this rank computes with.
        run_dir: where rank 0 writes the result.
        say: shows a line; only rank 0's are shown.

    Raises:
        FatalError: a device or a sum is wrong; on all ranks, and the text names the ranks.
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
    """One line for the log."""
    if not rates:
        return f"smoke test: {compute.device_name} computes rightly; there is one rank"
    each = ", ".join(
        f"{size(rate.size_bytes)} in {rate.seconds * 1e3:.3g} ms "
        f"({rate.bus_bytes_per_second / 1e9:.3g} GB/s)"
        for rate in rates
    )
    return f"smoke test: all-reduce over {world_size} ranks by {compute.backend}: {each}"


def size(count_bytes: int) -> str:
    """`4 KiB`, `16 MiB`."""
    unit, word = (MIB, "MiB") if count_bytes >= MIB else (KIB, "KiB")
    return f"{count_bytes // unit} {word}"


def device_problem(compute: Compute) -> str:
    """Multiplies two small matrices of ones; why the product is not what it has to be, or ''."""
    try:
        ones = torch.ones(_WIDTH, _WIDTH, dtype=compute.dtype, device=compute.device)
        wrong = int((ones @ ones != _WIDTH).sum())
    except RuntimeError as error:  # such as "no kernel image is available for execution"
        return str(error).strip().partition("\n")[0]
    return f"{wrong} of {_WIDTH**2} products of ones are wrong" if wrong else ""


def _measure(world: World, device: torch.device, size_bytes: int) -> tuple[Rate, str]:
    """The rate, and why the sum is wrong; '' where it is right."""
    count, seconds, problem = size_bytes // 4, list[float](), ""
    expected = world.size * (world.size + 1) / 2
    for repeat in range(1 + REPEATS):
        tensor = torch.full((count,), float(world.rank + 1), device=device)
        world.barrier()
        _wait_for(device)
        begin = time.monotonic()
        dist.all_reduce(tensor)
        _wait_for(device)
        if repeat:  # the first one sets up connections
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
    problems = world.gather_text(problem, room=256)
    faults = [f"rank {rank} {what}: {text}" for rank, text in enumerate(problems) if text]
    if faults:
        raise FatalError(f"smoke test: {'; '.join(faults)}")

"""The ranks of a run, and the few things they must agree on.

Control values go through CPU tensors over gloo, also on GPUs, so that asking never waits for
the GPU. All waits are bounded by `train.timeout_seconds`: a rank whose peer died gets an error.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from trainer.device import Compute
from trainer.exit_codes import FatalError


@dataclass(frozen=True)
class World:
    """This process among all processes of the run; torchrun's variables without one."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @staticmethod
    def from_environment() -> World:
        """Rank and size as torchrun sets them; one process without torchrun."""
        return World(
            rank=int(os.environ.get("RANK", "0")),
            size=int(os.environ.get("WORLD_SIZE", "1")),
            local_rank=int(os.environ.get("LOCAL_RANK", "0")),
        )

    @property
    def is_main(self) -> bool:
        """Whether this is the rank that logs and writes."""
        return self.rank == 0

    def connect(self, compute: Compute, timeout_seconds: int) -> None:
        """Join the process group.

        Raises:
            FatalError: two ranks would use the same GPU by NCCL.
        """
        if self.size == 1:
            return
        backend = "cpu:gloo,cuda:nccl" if compute.backend == "nccl" else "gloo"
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout_seconds))
        if compute.backend == "nccl":
            uuid = str(torch.cuda.get_device_properties(compute.device).uuid)
            if shared := duplicates(self._gather_text(uuid)):
                raise FatalError(
                    f"several ranks use the same GPU {', '.join(shared)} (time-slicing, or more "
                    "processes than GPUs), which NCCL refuses: give each rank its own GPU or MIG "
                    "slice, or set train.backend to gloo"
                )

    def sum(self, values: Sequence[float]) -> list[float]:
        """Sums over all ranks, in float64."""
        if self.size == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor)
        return [float(value) for value in tensor.tolist()]

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on at least one rank."""
        return self.sum([float(flag)])[0] > 0

    def broadcast(self, value: float) -> float:
        """Rank 0's value, on all ranks."""
        return self.sum([value if self.is_main else 0.0])[0]

    def max(self, values: Sequence[float]) -> list[float]:
        """The largest value of any rank, for each position."""
        if self.size == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return [float(value) for value in tensor.tolist()]

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        self.sum([0.0])

    def _gather_text(self, text: str, room: int = 64) -> list[str]:
        mine = torch.tensor(list(text.encode().ljust(room)[:room]), dtype=torch.uint8)
        everyones = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(everyones, mine)
        return [bytes(tensor.tolist()).decode().strip() for tensor in everyones]


def duplicates(names: Sequence[str]) -> list[str]:
    """The names that occur more than once, sorted."""
    return sorted(name for name, count in Counter(names).items() if count > 1)

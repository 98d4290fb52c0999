"""Connects the ranks of a run, and exchanges the few values on which they must agree.

These values go through CPU tensors over gloo, also on GPUs, so that an exchange never waits for the
GPU. All waits are bounded. If a peer hangs, a rank is ended after `train.timeout_seconds`, or,
until the first step is done, after `train.start_timeout_seconds`.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import functools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent import futures
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import (
    _set_pg_timeout,  # pyright: ignore[reportPrivateUsage]
)

from trainer.config import TrainConfig
from trainer.launch.exit_codes import FatalError, RetryableError
from trainer.parallel.agreement import Choice, agree
from trainer.parallel.device import Compute
from trainer.parallel.store_port import await_store
from trainer.watch.beat import BEAT

_POLL_SECONDS = 1.0  # less than the smallest train.timeout_seconds
_NOT_CONNECTED = "connectFullMesh failed"  # in gloo's error; torch has no class of its own for it
_TOO_LATE = "the limit is the longer one of train.start_timeout_seconds and train.timeout_seconds"
_T = TypeVar("_T")
_Method = TypeVar("_Method", bound=Callable[..., Any])


def _tells(method: _Method) -> _Method:
    """Make a collective report to the entrypoint, through `BEAT`, that this rank is in it."""

    @functools.wraps(method)
    def telling(*values: Any, **more: Any) -> Any:
        BEAT.enter()
        try:
            return method(*values, **more)
        finally:
            BEAT.leave()

    return cast(_Method, telling)


def _join(backend: str, limit_seconds: int, began: float) -> None:
    """Join the process group, in a thread, because gloo does not keep to its time limit.

    Where packets are lost without an answer, gloo gives up only after five times the limit
    (torch 2.7.1). The thread may go on after an error: it ends with this process.

    Args:
        backend: torch's name of the collectives.
        limit_seconds: The longest wait for the other ranks, and in each collective of the group.
        began: When this rank began to wait for the others, in seconds of `time.monotonic`.

    Raises:
        RetryableError: This rank got no connection to another rank in this time, or gloo says so.
            Its own words name no reason.
    """
    future: futures.Future[None] = futures.Future()

    def work() -> None:
        try:
            dist.init_process_group(backend, timeout=timedelta(seconds=limit_seconds))
        except BaseException as error:  # it is raised again in the thread that waits
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=work, name="join", daemon=True).start()
    seconds = max(0.0, began + limit_seconds - time.monotonic())
    is_late = bool(futures.wait([future], seconds).not_done)
    error = None if is_late else future.exception()
    if not is_late and _NOT_CONNECTED not in str(error):
        return future.result()
    name = os.environ.get("GLOO_SOCKET_IFNAME", "")
    over = f"over the network interface {name} (GLOO_SOCKET_IFNAME) " if name else ""
    raise RetryableError(
        f"no connection to all other ranks {over}within {time.monotonic() - began:.0f} s: "
        "either one of them has ended, and its lines say why, or the pods do not reach each "
        "other there, see docs/clusters.md#a-faster-network-between-the-machines "
        f"({error or _TOO_LATE})"
    ) from error


@dataclass(frozen=True)
class World:
    """The place of this process among all processes of the run."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    node: int = 0
    """The number of this rank's node, as the entrypoints count the nodes."""
    grouped: bool = False
    """Whether even a single rank has a process group. Tests on a machine with one GPU need it."""

    @staticmethod
    def from_environment() -> World:
        """Read rank and size from torchrun's variables. Without these there is one process."""
        return World(
            rank=int(os.environ.get("RANK", "0")),
            size=int(os.environ.get("WORLD_SIZE", "1")),
            local_rank=int(os.environ.get("LOCAL_RANK", "0")),
            node=int(os.environ.get("GROUP_RANK", "0")),
        )

    @property
    def is_main(self) -> bool:
        """Whether this is the rank that logs and writes."""
        return self.rank == 0

    @property
    def has_group(self) -> bool:
        """Whether the ranks are connected by a process group."""
        return self.grouped or self.size > 1

    def connect(self, compute: Compute, train: TrainConfig) -> Compute:
        """Join the process group, and return what all ranks agree to compute with.

        Raises:
            FatalError: The ranks cannot train together, or two of them use one GPU with NCCL.
            RetryableError: This rank got no connection to another one.
        """
        if not self.has_group:
            return compute
        backend = "cpu:gloo,cuda:nccl" if compute.backend == "nccl" else "gloo"
        longest = max(train.start_timeout_seconds, train.timeout_seconds)
        began = time.monotonic()
        await_store(self.rank, self.size, longest)
        _join(backend, longest, began)
        texts = self.gather_objects(Choice.of(compute).to_text())
        compute = agree(compute, train.dtype, [Choice.from_text(text) for text in texts])
        if compute.backend == "nccl":
            uuid = str(torch.cuda.get_device_properties(compute.device).uuid)
            if shared := duplicates(self.gather_objects(uuid)):
                raise FatalError(
                    f"several ranks use the same GPU {', '.join(shared)} (time-slicing, MIG, or "
                    "more processes than GPUs), which NCCL refuses: give each rank a whole GPU of "
                    "its own, or set train.backend to gloo"
                )
        return compute

    def bound_waits(self, timeout_seconds: int) -> None:
        """Let each collective wait at most `timeout_seconds` for the other ranks from now on.

        All ranks must call this after their first step. It first waits for the last of them: on
        GPUs a rank has ended its first step before it has waited for any other rank, and another
        rank may still compile.

        With NCCL, torch enforces this limit. The limit of a gloo group cannot be changed after the
        group is made. So the entrypoint enforces it there, from the reports of this rank
        (trainer/launch/hang_watch.py). If there is only one rank, which has no collectives, the
        entrypoint watches it while it computes.
        """
        if self.has_group:
            self.barrier()
            # This function is not public, but no public one sets the limit; torch is pinned.
            _set_pg_timeout(timedelta(seconds=timeout_seconds))
        BEAT.bound_waits(timeout_seconds)

    def on_main_while_others_ask(self, work: Callable[[], _T]) -> _T | None:
        """Run `work` in a thread of rank 0, and return its result there. Other ranks return None.

        Meanwhile the ranks exchange again and again whether `work` has ended. So `work` may take
        longer than `train.timeout_seconds`, which bounds each collective. All ranks must call this.

        Raises:
            FatalError, RetryableError: `work` has raised the error. All ranks raise it.
        """
        if not self.has_group:
            return work()
        threads = futures.ThreadPoolExecutor(1, "main-work")
        future = threads.submit(work) if self.is_main else None
        ended = failed = fatal = 0.0
        error: BaseException | None = None
        while not ended:
            if future is not None and not futures.wait([future], _POLL_SECONDS).not_done:
                ended, error = 1.0, future.exception()
            ended, failed, fatal = self.sum(
                [ended, float(error is not None), float(isinstance(error, FatalError))]
            )
        threads.shutdown()
        if failed:  # Each node shows the reason of one of its ranks, so every rank needs it.
            reason = self.gather_objects(str(error or ""))[0]
            if error is not None:
                raise error
            raise (FatalError if fatal else RetryableError)(reason)
        return future.result() if future is not None else None

    @_tells
    def sum(self, values: Sequence[float]) -> list[float]:
        """The sum over all ranks, in float64, for each position."""
        return self._reduced(values, dist.ReduceOp.SUM)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on at least one rank."""
        return self.sum([float(flag)])[0] > 0

    def broadcast(self, value: float) -> float:
        """Return the value of rank 0 on all ranks."""
        return self.sum([value if self.is_main else 0.0])[0]

    @_tells
    def max(self, values: Sequence[float]) -> list[float]:
        """The largest value of all ranks, for each position."""
        return self.max_unseen(values)

    def max_unseen(self, values: Sequence[float]) -> list[float]:
        """Do as `max` does, but do not report it to the entrypoint.

        This is for ranks that meet again and again while they wait for something else. Otherwise
        such a rank would seem to come further.
        """
        return self._reduced(values, dist.ReduceOp.MAX)

    def _reduced(self, values: Sequence[float], how: Any) -> list[float]:
        if not self.has_group:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, how)
        return [float(value) for value in tensor.tolist()]

    def barrier(self) -> None:
        """Wait until all ranks have called this method."""
        self.sum([0.0])

    def together_while_asking(self, work: Callable[[], str]) -> list[str]:
        """Run `work` in a thread of every rank, and return the texts of all ranks, by rank.

        `work` may take longer than a collective, as in `on_main_while_others_ask`. All ranks must
        call this, and `work` must not raise.
        """
        if self.size == 1:
            return [work()]
        with futures.ThreadPoolExecutor(1, "together") as threads:
            future = threads.submit(work)
            while self.any(bool(futures.wait([future], _POLL_SECONDS).not_done)):
                pass
        return self.gather_objects(future.result())

    @_tells
    def gather_objects(self, mine: _T) -> list[_T]:
        """Return the object of every rank on all ranks.

        The objects are sent with pickle, which is safe because only the ranks of this run send any.
        """
        if self.size == 1:
            return [mine]
        everyones: list[Any] = [None] * self.size
        dist.all_gather_object(everyones, mine)
        return everyones


def duplicates(names: Sequence[str]) -> list[str]:
    """The names that occur more than once, sorted."""
    return sorted(name for name, count in Counter(names).items() if count > 1)

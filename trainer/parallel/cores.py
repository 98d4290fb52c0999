"""Counts the CPU cores of this process, and the threads that each rank may use."""

from __future__ import annotations

import os
from pathlib import Path


def threads_per_rank(local_ranks: int, ranks_on_machine: int) -> int:
    """The number of threads for one rank of this node. More threads would only wait for each other.

    Args:
        local_ranks: The number of ranks of this node. They share its CPU quota, if it has one.
        ranks_on_machine: The number of ranks of all nodes on this machine. They share its cores.
    """
    return share_cores(machine_cores(), cgroup_quota(), local_ranks, ranks_on_machine)


def share_cores(cores: int, quota: float | None, local_ranks: int, ranks_on_machine: int) -> int:
    """The number of threads for one rank, from the machine's cores and the quota. Pure."""
    threads = cores // ranks_on_machine
    if quota is not None:  # No other pod uses this quota, so it may exceed an even share.
        threads = min(cores, int(quota)) // local_ranks
    return max(1, threads)


def available_cores() -> int:
    """The number of CPU cores that this process may use, by affinity and the cgroup's quota."""
    quota = cgroup_quota()
    return machine_cores() if quota is None else max(1, min(machine_cores(), int(quota)))


def machine_cores() -> int:
    """The number of CPU cores on which this process may run, by its affinity."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS has no sched_getaffinity.
        return os.cpu_count() or 1


def cgroup_quota(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """The cores that the cgroup's CPU quota (version 2, else 1) allows, or None without a quota."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        quota = int((root / "cpu" / "cpu.cfs_quota_us").read_text())
        period = int((root / "cpu" / "cpu.cfs_period_us").read_text())
        return quota / period if quota > 0 else None
    except (OSError, ValueError):
        return None

"""How many CPU cores this process has, and how many threads each rank may use."""

from __future__ import annotations

import os
from pathlib import Path


def threads_per_rank(local_ranks: int, ranks_on_machine: int) -> int:
    """Threads for one rank of this node; more would only wait for each other.

    Args:
        local_ranks: of this node. They share its CPU quota, if it has one.
        ranks_on_machine: of all nodes on this machine. They share its cores.
    """
    return share_cores(machine_cores(), cgroup_quota(), local_ranks, ranks_on_machine)


def share_cores(cores: int, quota: float | None, local_ranks: int, ranks_on_machine: int) -> int:
    """Threads for one rank, from the cores of the machine and of the quota. Pure."""
    threads = cores // ranks_on_machine
    if quota is not None:  # the quota is this pod's alone, so it may be more than an even share
        threads = min(cores, int(quota)) // local_ranks
    return max(1, threads)


def available_cores() -> int:
    """Number of CPU cores this process may use, by affinity and the cgroup's quota."""
    quota = cgroup_quota()
    return machine_cores() if quota is None else max(1, min(machine_cores(), int(quota)))


def machine_cores() -> int:
    """Number of CPU cores this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1


def cgroup_quota(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Cores of the cgroup's CPU quota (version 2, else 1), or None without one."""
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

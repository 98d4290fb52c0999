"""How many CPU cores this process has."""

from __future__ import annotations

import os
from pathlib import Path


def available_cores() -> int:
    """Number of CPU cores this process may use, by affinity and the cgroup's quota."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        cores = os.cpu_count() or 1
    quota = cgroup_quota()
    return cores if quota is None else max(1, min(cores, int(quota)))


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

"""How many threads each rank uses, by the cores of its machine and the quota of its pod."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainer.parallel.cores import available_cores, cgroup_quota, share_cores


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)
def test_the_cpu_quota_of_both_cgroup_versions_is_read(
    tmp_path: Path, files: dict[str, str], cores: float | None
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert cgroup_quota(tmp_path) == cores


def test_a_process_has_at_least_one_core_and_at_most_the_machines() -> None:
    assert 1 <= available_cores() <= (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("cores", "quota", "local_ranks", "ranks_on_machine", "threads"),
    [
        (64, None, 1, 1, 64),  # one of four hosts
        (64, None, 2, 8, 8),  # four pods of two ranks on one machine
        (4, 4.0, 1, 3, 4),  # three pods on one machine, each with a quota of its own
        (16, 4.0, 2, 6, 2),
        (2, None, 1, 3, 1),
    ],
)
def test_threads_are_shared_by_the_ranks_of_a_machine(
    cores: int, quota: float | None, local_ranks: int, ranks_on_machine: int, threads: int
) -> None:
    """Only ranks of one machine share its cores, and only ranks of one pod share its quota.
    Otherwise four hosts of 64 cores would give each rank 16 threads.
    """
    assert share_cores(cores, quota, local_ranks, ranks_on_machine) == threads

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainer.cores import available_cores, cgroup_quota


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

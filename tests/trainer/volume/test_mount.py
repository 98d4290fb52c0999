"""The file system that a folder is on, from recorded tables of mounts and from that of this
system.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer.volume.mount import mount_here, mount_of

TABLE = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:50 / /data rw,relatime - nfs4 server:/exports/a\\040b rw,vers=4.1
31 22 8:2 / /data2 rw,relatime - xfs /dev/sdb1 rw
32 30 8:3 /x /data/runs rw,relatime - ext4 /dev/sdc1 rw
"""


@pytest.mark.parametrize(
    ("folder", "mount"),
    [
        ("/var/lib", "ext4 from /dev/sda1"),
        ("/data/datasets", "nfs4 from server:/exports/a b"),
        ("/data2", "xfs from /dev/sdb1"),
        ("/data/runs/r", "ext4 from /dev/sdc1"),
    ],
)
def test_longest_mount_above_folder_counts(folder: str, mount: str) -> None:
    """The mount that holds a folder is the deepest one above it."""
    assert mount_of(folder, TABLE) == mount


def test_later_mount_covers_earlier_one() -> None:
    """Of two mounts at one place the later one counts, and a line that is no mount is
    passed over.
    """
    table = f"{TABLE}40 22 0:60 / /data rw - tmpfs none rw\nno mount\n"
    assert mount_of("/data/datasets", table) == "tmpfs from none"
    assert mount_of("/data", "") == ""


def test_own_folder_has_a_mount(tmp_path: Path) -> None:
    """The table of mounts of this system can be read."""
    assert " from " in mount_here(tmp_path)

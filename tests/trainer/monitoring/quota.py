"""Limits on the CPU time of one pod's program, by the kernel's control groups. They need root."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox.cgroups import CGROUP_ROOT, is_version_2, make_cgroup, remove_cgroup

PERIOD_MICROSECONDS = 100_000
# Joins the group, and mounts its files where a container sees the files of its own group.
JOIN = """
echo $$ >"$1/cgroup.procs"
exec unshare --mount --propagation private sh -c '
    mount --bind "$1" "$2"
    shift 2
    exec "$@"
' sh "$@"
"""


@dataclass(frozen=True)
class Quota:
    """A control group for CPU time, which has no limit at first.

    Args:
        folder: the folder of the group.
        seen_at: the path at which a process in a container sees its group.
    """

    folder: Path
    seen_at: Path

    @property
    def wrapper(self) -> Sequence[str]:
        """Return the first words of a command line that runs the rest of it in the group."""
        return ["sh", "-ec", JOIN, "sh", str(self.folder), str(self.seen_at)]

    def limit(self, microseconds: int | None) -> None:
        """Limit the CPU time in each period of 100 ms; None removes the limit."""
        if is_version_2(CGROUP_ROOT):
            text = f"{microseconds or 'max'} {PERIOD_MICROSECONDS}"
            (self.folder / "cpu.max").write_text(text)
            return
        (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
        (self.folder / "cpu.cfs_quota_us").write_text(str(microseconds or -1))


@contextmanager
def quota(name: str) -> Iterator[Quota]:
    """Make a group of this name for the block; its processes have to end before."""
    cgroup = f"/{name}"
    make_cgroup(cgroup)
    seen_at = CGROUP_ROOT if is_version_2(CGROUP_ROOT) else CGROUP_ROOT / "cpu"
    try:
        yield Quota(seen_at / name, seen_at)
    finally:
        remove_cgroup(cgroup)

"""A CPU quota for one pod's program, by the kernel's own control groups; as root."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox.cgroups import CGROUP_ROOT, is_version_2, make_cgroup, remove_cgroup

PERIOD_MICROSECONDS = 100_000
# Joins the group, and sees its files where a container sees those of its own group.
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
        folder: of the group.
        seen_at: where a process in a container finds it.
    """

    folder: Path
    seen_at: Path

    @property
    def wrapper(self) -> Sequence[str]:
        """A command that executes the one that follows it in the group."""
        return ["sh", "-ec", JOIN, "sh", str(self.folder), str(self.seen_at)]

    def limit(self, microseconds: int | None) -> None:
        """So much CPU time in each period of 100 ms; None: any."""
        if is_version_2(CGROUP_ROOT):
            text = f"{microseconds or 'max'} {PERIOD_MICROSECONDS}"
            (self.folder / "cpu.max").write_text(text)
            return
        (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
        (self.folder / "cpu.cfs_quota_us").write_text(str(microseconds or -1))


@contextmanager
def quota(name: str) -> Iterator[Quota]:
    """A group of that name, removed when its processes have ended."""
    cgroup = f"/{name}"
    make_cgroup(cgroup)
    seen_at = CGROUP_ROOT if is_version_2(CGROUP_ROOT) else CGROUP_ROOT / "cpu"
    try:
        yield Quota(seen_at / name, seen_at)
    finally:
        remove_cgroup(cgroup)

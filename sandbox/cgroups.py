"""Makes and removes the control group of a cluster's pods, in cgroup versions 1 and 2.

The kubelet starts only if its `cgroupRoot` exists and has every controller that it uses.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from sandbox.waiting import wait_until

CGROUP_ROOT = Path("/sys/fs/cgroup")
NEEDED = ("cpu", "cpuset", "memory", "pids")
USED = (*NEEDED, "hugetlb")


def is_version_2(root: Path = CGROUP_ROOT) -> bool:
    """Whether `root` is the single hierarchy of cgroup version 2."""
    return (root / "cgroup.controllers").exists()


def hierarchies(root: Path = CGROUP_ROOT) -> list[Path]:
    """Roots of all hierarchies: one in version 2, one for each set of controllers in version 1."""
    if is_version_2(root):
        return [root]
    # In version 1, `cpu` may be a link to `cpu,cpuacct`. Links are left out, because the hierarchy
    # would count twice.
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.is_symlink())


def missing_controllers(root: Path = CGROUP_ROOT) -> list[str]:
    """Names of the controllers that the kubelet needs and this machine does not offer."""
    if is_version_2(root):
        offered = (root / "cgroup.controllers").read_text().split()
    else:
        offered = [name for path in hierarchies(root) for name in path.name.split(",")]
    return [controller for controller in NEEDED if controller not in offered]


def make_cgroup(cgroup: str, root: Path = CGROUP_ROOT) -> None:
    """Make `cgroup` ("/a/b") in every hierarchy and enable its controllers.

    Raises:
        RuntimeError: the kernel refuses. In version 2 a control group that holds processes cannot
            enable controllers for its children, and a container's root control group holds
            processes.
    """
    try:
        _make_in_all(cgroup, root)
    except OSError as reason:
        raise RuntimeError(
            f"the control group {cgroup} cannot be made: {reason}. In a container, run the sandbox "
            "with a writable /sys/fs/cgroup and no other process in the root control group."
        ) from reason


def _make_in_all(cgroup: str, root: Path) -> None:
    for hierarchy in hierarchies(root):
        parent = hierarchy
        for part in cgroup.strip("/").split("/"):
            _pass_on_controllers(parent)
            child = parent / part
            child.mkdir(exist_ok=True)
            _inherit_cpuset(parent, child)
            parent = child
        _pass_on_controllers(parent)


def remove_cgroup(cgroup: str, root: Path = CGROUP_ROOT) -> None:
    """Remove `cgroup`, all groups below it, and those of its parents that are then empty.

    Raises:
        TimeoutError: a process still runs in the control group.
    """
    for hierarchy in hierarchies(root) if root.exists() else []:
        top = hierarchy / cgroup.strip("/")

        def busy(top: Path = top) -> str | None:
            try:
                for path in _bottom_up(top):
                    path.rmdir()
            except FileNotFoundError:
                return "groups are still being removed from it"
            except OSError as reason:  # the kernel still counts a process that has just ended
                return str(reason)
            return None

        wait_until(f"the control group {top} to be empty", busy, timeout_seconds=20)
        for parent in top.parents:
            if parent == hierarchy or not parent.is_dir():
                break
            try:
                parent.rmdir()
            except OSError:  # it holds the control groups of another cluster
                break


def _bottom_up(top: Path) -> Iterator[Path]:
    if not top.is_dir():
        return
    for directory, _, _ in os.walk(top, topdown=False):
        yield Path(directory)


def _pass_on_controllers(cgroup: Path) -> None:
    """In version 2, enable for the children of `cgroup` the controllers that it has itself."""
    if not (cgroup / "cgroup.subtree_control").exists():
        return
    available = (cgroup / "cgroup.controllers").read_text().split()
    enabled = (cgroup / "cgroup.subtree_control").read_text().split()
    for controller in USED:
        if controller in available and controller not in enabled:
            (cgroup / "cgroup.subtree_control").write_text(f"+{controller}")


def _inherit_cpuset(parent: Path, child: Path) -> None:
    """In version 1, copy the parent's cpuset, since a group with an empty one takes no process."""
    for file in ("cpuset.cpus", "cpuset.mems"):
        if not is_version_2(parent) and (child / file).exists():
            (child / file).write_text((parent / file).read_text())

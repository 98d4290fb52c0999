"""The control group that holds a cluster's pods, in version 1 and version 2 hierarchies.

The kubelet wants its `cgroupRoot` to exist with every controller that it uses.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from sandbox.waiting import wait_until

CGROUP_ROOT = Path("/sys/fs/cgroup")
NEEDED = ("cpu", "cpuset", "memory", "pids")
USED = (*NEEDED, "hugetlb")


def is_version_2(root: Path = CGROUP_ROOT) -> bool:
    """Whether `root` is one unified hierarchy."""
    return (root / "cgroup.controllers").exists()


def hierarchies(root: Path = CGROUP_ROOT) -> list[Path]:
    """Roots of all hierarchies: one in version 2, one per mounted controller set in version 1."""
    if is_version_2(root):
        return [root]
    # `cpu` may be a link to `cpu,cpuacct`: each hierarchy once.
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.is_symlink())


def missing_controllers(root: Path = CGROUP_ROOT) -> list[str]:
    """Controllers that the kubelet needs and this machine does not offer."""
    if is_version_2(root):
        offered = (root / "cgroup.controllers").read_text().split()
    else:
        offered = [name for path in hierarchies(root) for name in path.name.split(",")]
    return [controller for controller in NEEDED if controller not in offered]


def make_cgroup(cgroup: str, root: Path = CGROUP_ROOT) -> None:
    """Make `cgroup` ("/a/b") in every hierarchy, with its controllers usable.

    Raises:
        RuntimeError: the kernel refuses. In version 2 a control group cannot have both processes
            and controllers for its children, which is so at the "root" inside a container.
    """
    try:
        _make_in_all(cgroup, root)
    except OSError as reason:
        raise RuntimeError(
            f"control group {cgroup}: {reason} (inside a container, the container itself has to "
            "leave /sys/fs/cgroup to the sandbox)"
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
    """Remove `cgroup`, all below it, and its parents as far as they are empty.

    Raises:
        TimeoutError: something still runs in it.
    """
    for hierarchy in hierarchies(root) if root.exists() else []:
        top = hierarchy / cgroup.strip("/")

        def busy(top: Path = top) -> str | None:
            try:
                for path in _bottom_up(top):
                    path.rmdir()
            except FileNotFoundError:
                return "it changes"
            except OSError as reason:  # the kernel forgets ended processes a moment later
                return str(reason)
            return None

        wait_until(f"the control group {top} to be empty", busy, timeout_seconds=20)
        for parent in top.parents:
            if parent == hierarchy or not parent.is_dir():
                break
            try:
                parent.rmdir()
            except OSError:  # another cluster's are in it
                break


def _bottom_up(top: Path) -> Iterator[Path]:
    if not top.is_dir():
        return
    for directory, _, _ in os.walk(top, topdown=False):
        yield Path(directory)


def _pass_on_controllers(cgroup: Path) -> None:
    """Version 2: let the children of `cgroup` use what it may use itself."""
    if not (cgroup / "cgroup.subtree_control").exists():
        return
    available = (cgroup / "cgroup.controllers").read_text().split()
    enabled = (cgroup / "cgroup.subtree_control").read_text().split()
    for controller in USED:
        if controller in available and controller not in enabled:
            (cgroup / "cgroup.subtree_control").write_text(f"+{controller}")


def _inherit_cpuset(parent: Path, child: Path) -> None:
    """Version 1: a new cpuset is empty and takes no process until it is filled."""
    for file in ("cpuset.cpus", "cpuset.mems"):
        if not is_version_2(parent) and (child / file).exists():
            (child / file).write_text((parent / file).read_text())

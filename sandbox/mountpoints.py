"""Folders whose paths are fixed inside kubelet and CNI, needed on the host as mount points only.

Each cluster mounts its own folder over them in its own mount namespace; on the host they stay
empty but for a mark. Those that did not exist before go away with the last cluster.
"""

from pathlib import Path

FIXED = (Path("/var/lib/kubelet"), Path("/var/lib/cni"))
MARK = ".made-by-disttrain-sandbox"


def make_mount_points() -> None:
    """Make and mark what is missing. The caller holds the lock of all clusters."""
    for folder in FIXED:
        if not folder.exists():
            folder.mkdir()
            (folder / MARK).touch()


def remove_mount_points() -> None:
    """Remove what was made, unless a mount namespace still uses it. Hold the lock."""
    used = _mounted_anywhere()
    for folder in FIXED:
        # Removing a mount point would take the mount away from the cluster that has it.
        if str(folder) in used or not (folder / MARK).exists():
            continue
        if [path.name for path in folder.iterdir()] == [MARK]:
            (folder / MARK).unlink()
            folder.rmdir()


def _mounted_anywhere() -> set[str]:
    """Every mount point in every mount namespace that a process lives in."""
    seen: set[str] = set()
    for table in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            lines = table.read_text().splitlines()
        except OSError:  # the process has just ended
            continue
        seen.update(line.split()[4] for line in lines)
    return seen

"""Makes the folders whose paths are fixed in the kubelet and in CNI, as mount points on the host.

Each cluster mounts its own folders over them in its own mount namespace. On the host they hold
nothing but a file that marks them as made by the sandbox. They are removed with the last cluster.
"""

from pathlib import Path

FIXED = (Path("/var/lib/kubelet"), Path("/var/lib/cni"))
MARK = ".made-by-disttrain-sandbox"


def make_mount_points() -> None:
    """Make and mark the folders that are missing. The caller holds the lock of all clusters."""
    for folder in FIXED:
        if not folder.exists():
            folder.mkdir()
            (folder / MARK).touch()


def remove_mount_points() -> None:
    """Remove the folders that were made, unless a mount namespace uses them.

    The caller holds the lock of all clusters.
    """
    used = _mounted_anywhere()
    for folder in FIXED:
        # Removing a mount point would take the mount away from the cluster that has it.
        if str(folder) in used or not (folder / MARK).exists():
            continue
        if [path.name for path in folder.iterdir()] == [MARK]:
            (folder / MARK).unlink()
            folder.rmdir()


def _mounted_anywhere() -> set[str]:
    """All mount points of all mount namespaces that have a process."""
    seen: set[str] = set()
    for table in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            lines = table.read_text().splitlines()
        except OSError:  # the process has just ended
            continue
        seen.update(line.split()[4] for line in lines)
    return seen

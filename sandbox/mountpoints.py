"""Folders whose paths are fixed inside kubelet and CNI, needed on the host as mount points only.

Each cluster mounts its own folder over them in its own mount namespace; on the host they stay
empty. Those that did not exist are noted and go away with the last cluster.
"""

import json
from pathlib import Path

FIXED = (Path("/var/lib/kubelet"), Path("/var/lib/cni"))


def make_mount_points(note: Path) -> None:
    """Make what is missing; `note` (a JSON list) remembers it. Hold the lock of all clusters."""
    made = _noted(note)
    for folder in FIXED:
        if not folder.exists():
            made.append(str(folder))
            note.write_text(json.dumps(made))  # first the note: an interrupted run leaves no trace
            folder.mkdir()


def remove_mount_points(note: Path) -> None:
    """Remove what was made, unless a mount namespace still uses it. Hold the lock."""
    made = _noted(note)
    used = _mounted_anywhere()
    kept: list[str] = []
    for folder in made:
        # Removing a mount point takes the mount away from whoever has it.
        if folder in used:
            kept.append(folder)
        elif Path(folder).is_dir() and not any(Path(folder).iterdir()):
            Path(folder).rmdir()
    if kept:
        note.write_text(json.dumps(kept))
    else:
        note.unlink(missing_ok=True)


def _noted(note: Path) -> list[str]:
    return json.loads(note.read_text()) if note.exists() else []


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

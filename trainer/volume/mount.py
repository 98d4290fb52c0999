"""Finds the file system of a folder in Linux's table of mounts. All but `mount_here` is pure."""

from __future__ import annotations

import re
from pathlib import Path

_TABLE = Path("/proc/self/mountinfo")
_ESCAPE = re.compile(r"\\([0-7]{3})")


def mount_here(folder: Path) -> str:
    """Return the mount of a folder, e.g. `nfs4 from server:/exports`; empty if it is not known."""
    try:
        return mount_of(str(folder.absolute()), _TABLE.read_text())
    except OSError:  # This is not Linux.
        return ""


def mount_of(folder: str, table: str) -> str:
    """Find the mount of a folder in the text of /proc/self/mountinfo (proc(5)).

    Args:
        folder: An absolute path.
        table: The table of mounts. A later mount covers an earlier one at the same place.
    """
    found, longest = "", -1
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        fields, source = before.split(), after.split()
        if len(fields) < 5 or len(source) < 2:
            continue
        place = _unescaped(fields[4])
        inside = folder == place or folder.startswith(f"{place.rstrip('/')}/")
        if inside and len(place) >= longest:
            found, longest = f"{source[0]} from {_unescaped(source[1])}", len(place)
    return found


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)

"""Finds the processes below an entrypoint, and its ranks. It needs no pytest, for tests/gpu."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def processes_below(pid: int) -> list[int]:
    """Return the process and all its descendants (Linux)."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found = [pid]
    for known in found:
        found.extend(children.get(known, []))
    return found


def name_of(pid: int) -> str:
    """Return the name that `top` shows, such as `rank-0`; empty if the process has ended
    (Linux).
    """
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def is_running(pid: int) -> bool:
    """Return whether the process runs, or is a zombie that no process has waited for yet."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def ranks_below(pid: int) -> list[int]:
    """Return the PIDs of an entrypoint's ranks, in the order of the ranks, without waiting
    spares.
    """
    named = {pid: name_of(pid) for pid in processes_below(pid)}
    ranks = [pid for pid, name in named.items() if name.startswith("rank-")]
    return sorted(ranks, key=lambda pid: int(named[pid].removeprefix("rank-")))

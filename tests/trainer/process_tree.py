"""The processes below an entrypoint, and which are ranks. It needs no pytest, as tests/gpu."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def processes_below(pid: int) -> list[int]:
    """The process and all its descendants (Linux)."""
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
    """As `top` shows the process: `rank-0`, for example; empty if it has ended (Linux)."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def is_running(pid: int) -> bool:
    """Whether the process has not ended, or nobody has asked yet how it has."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def ranks_below(pid: int) -> list[int]:
    """The ranks that an entrypoint has started, by rank, without the spares that wait."""
    named = {pid: name_of(pid) for pid in processes_below(pid)}
    ranks = [pid for pid, name in named.items() if name.startswith("rank-")]
    return sorted(ranks, key=lambda pid: int(named[pid].removeprefix("rank-")))

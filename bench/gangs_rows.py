"""Whether two gangs ever had pods at once, and how soon the next one ran. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from bench.kinds_watch import Seen
from bench.row import Row

PODS = 3  # of each gang
BAR_SECONDS = 5.0


def overlaps(seen: Sequence[Seen]) -> list[str]:
    """The moments at which pods of two gangs were there that had not ended, each as a sentence."""
    alive, found = dict[str, str](), list[str]()  # uid -> gang
    for each in seen:
        if each.is_over:
            alive.pop(each.uid, None)
            continue
        alive[each.uid] = each.mark
        gangs = sorted(set(alive.values()))
        if len(gangs) > 1:
            found.append(f"{each.at:.3f}: {each.name} came while {', '.join(gangs)} had pods")
    return found


def starts_after_room(seen: Sequence[Seen]) -> list[float]:
    """Seconds from the end of the last pod of one gang until all pods of the next one run."""
    found, alive = list[float](), dict[str, str]()
    running = dict[str, set[str]]()
    room: float | None = None
    for each in seen:
        if each.is_over:
            was_there = alive.pop(each.uid, None) is not None
            if was_there and not alive:
                room = each.at
            continue
        alive[each.uid] = each.mark
        if each.phase == "Running":
            gang = running.setdefault(each.mark, set())
            gang.add(each.uid)
            if len(gang) == PODS and room is not None:
                found.append(each.at - room)
                room = None
    return found


def row(seen: Sequence[Seen], gangs: int, kills: int) -> Row:
    """The row of the table."""
    found, starts = overlaps(seen), starts_after_room(seen)
    text = f"{len(found)} of {len(seen)} states of pods seen"
    if starts:
        p50, p95 = np.percentile(starts, (50, 95))
        text += f"; the next gang runs after p50 {p50:.1f} s, p95 {p95:.1f} s"
        text += f" (at best {min(starts):.1f}, mean {statistics.mean(starts):.1f})"
    return Row(
        f"two of {gangs} gangs of {PODS} pods hold pods at once, {kills} kills of Kueue's and "
        "JobSet's controllers",
        "never",
        text,
        not found,
    )

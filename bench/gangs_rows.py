"""Judges whether two gangs ever had pods at once, and how soon the next one ran; pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from bench.kinds_watch import Seen
from bench.row import Row

PODS = 3  # of each gang
BAR_SECONDS = 5.0


def overlaps(seen: Sequence[Seen]) -> list[str]:
    """The moments at which two gangs had unfinished pods, each as a sentence."""
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


def undisturbed(seen: Sequence[Seen], gangs: int, title: str) -> Row:
    """The row of gangs whose controllers run all the time.

    The bar in seconds is for the 95th percentile of the times.
    """
    found, starts = overlaps(seen), starts_after_room(seen)
    return Row(
        f"two of {gangs} gangs of {PODS} pods hold pods at once, and the time from the end of one "
        f"until all pods of the next one run; {title} run all the time",
        f"never; p95 <= {BAR_SECONDS:g} s",
        f"{_held(found, seen)}; {_times(starts)}",
        not found and bool(starts) and _percentile(starts, 95) <= BAR_SECONDS,
    )


def disturbed(seen: Sequence[Seen], gangs: int, kills: int, title: str) -> Row:
    """The row of gangs whose controllers are killed and started again meanwhile."""
    found, starts = overlaps(seen), starts_after_room(seen)
    return Row(
        f"two of {gangs} gangs of {PODS} pods hold pods at once, {kills} kills of {title}",
        "never",
        f"{_held(found, seen)}; {_times(starts)}",
        not found,
    )


def _held(found: Sequence[str], seen: Sequence[Seen]) -> str:
    return f"{len(found)} of {len(seen)} states of pods seen"


def _times(starts: Sequence[float]) -> str:
    if not starts:
        return "no gang ran after another one"
    p50, p95 = (_percentile(starts, percent) for percent in (50, 95))
    spread = f"at best {min(starts):.1f}, mean {statistics.mean(starts):.1f}"
    return f"the next gang runs after p50 {p50:.1f} s, p95 {p95:.1f} s ({spread})"


def _percentile(values: Sequence[float], percent: float) -> float:
    return float(np.percentile(values, percent))

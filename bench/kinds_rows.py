"""Makes the rows of the table from what `bench.kinds` has measured; pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import numpy as np

from bench.kinds_account import Recovery
from bench.kinds_faults import FAULTS
from bench.row import Row
from bench.table import Json
from trainer.events.span import Phase

FIRST_STEP = "from `pulumi up` of a new run to the first step of all ranks"
MOST_DIFFERENCE = 0.02
# Two programs write these times. The share of a recovery of half a second would be only 10 ms.
MOST_SECONDS = 0.1


def first_step_row(seconds: Sequence[float]) -> Row:
    """The row of the time from `pulumi up` to the first step."""
    return Row(
        FIRST_STEP,
        "-",
        f"{statistics.median(seconds):.1f} s, median of {len(seconds)}: "
        f"{min(seconds):.1f} to {max(seconds):.1f}",
        None,
    )


def recovery_row(
    what: str, bar_seconds: float, found: Sequence[Recovery], slow_by: str = ""
) -> Row:
    """The row of the time from a fault to the next new step, with its parts.

    The parts are medians of their own, so they do not sum up to the median of the whole. The row
    also says how far the sums of the single recoveries are from their wholes, and what the times
    are without the controller's share. The bar is for the whole. If the run had to wait because the
    controller was down, the bar is for the time without that outage.

    Args:
        what: the name of the fault.
        bar_seconds: the bar for the 95th percentile, in seconds.
        found: the recoveries.
        slow_by: why the controller takes so long, such as the number of its issue; empty: the
            reason is not known.
    """
    seconds = [recovery.seconds for recovery in found]
    p50, p95 = _percentiles(seconds)
    parts = [
        ("it trains on for", _median(found, lambda each: each.before)),
        ("a step that is cut off", _median(found, lambda each: each.phases[None])),
    ]
    parts += [
        (phase.value, _median(found, lambda each, p=phase: each.phases[p])) for phase in Phase
    ]
    outside = [
        ("old pod's end", _median(found, lambda each: each.ending)),
        ("then the controller makes the new pod", _median(found, lambda each: each.controller)),
        ("then it runs", _median(found, lambda each: each.kubelet)),
    ]
    differences = [recovery.difference_seconds for recovery in found]
    adds_up = all(
        difference <= max(MOST_SECONDS, MOST_DIFFERENCE * whole)
        for difference, whole in zip(differences, seconds, strict=True)
    )
    text = f"p50 {p50:.1f} s, p95 {p95:.1f} s ({min(seconds):.1f} to {max(seconds):.1f}); "
    text += f"medians: {_said(parts)}; "
    if seen := _said(outside):
        text += f"beside that, from outside: {seen}; "
    after = [recovery.seconds_after_outage for recovery in found]
    outage = statistics.median(recovery.outage for recovery in found)
    _, p95_judged = _percentiles(after)
    if outage:
        after50, after95 = _percentiles(after)
        text += f"without the {outage:.1f} s in which the controller was down "
        text += f"p50 {after50:.1f} s, p95 {after95:.1f} s; "
    if rest := [each.seconds_of_others for each in found if each.seconds_of_others is not None]:
        share = f"the controller's share ({slow_by})" if slow_by else "the controller's share"
        rest50, rest95 = _percentiles(rest)
        text += f"without {share} p50 {rest50:.1f} s, p95 {rest95:.1f} s; "
    text += f"sum and whole differ by at most {max(differences):.2f} s"
    of_what = " without the time in which it was down" if outage else ""
    return Row(
        f"{of_fault(what)}, {len(found)} times",
        f"p95 <= {bar_seconds:g} s{of_what}, "
        f"sum within {100 * MOST_DIFFERENCE:g} % or {MOST_SECONDS:g} s",
        text,
        p95_judged <= bar_seconds and adds_up,
    )


def merged(before: Sequence[Json], measured: Sequence[Json]) -> list[Json]:
    """The rows of a kind: the new ones, and those earlier ones that were not measured again.

    Rows have the order in which they are measured. A row is about the text before its first comma.
    """
    found = {_about(row): row for row in before} | {_about(row): row for row in measured}
    first = [_about({"what": FIRST_STEP})]
    order = [*first, *(_about({"what": of_fault(fault.what)}) for fault in FAULTS)]
    known = [found.pop(about) for about in order if about in found]
    return [*known, *found.values()]


def of_fault(what: str) -> str:
    """What the row of a fault is about."""
    return f"from {what} to the next new step"


def _about(row: Json) -> str:
    return str(row["what"]).partition(",")[0]


def _percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    p50, p95 = np.percentile(seconds, (50, 95))
    return float(p50), float(p95)


def _median(found: Sequence[Recovery], part: Callable[[Recovery], float | None]) -> float | None:
    known = [value for value in map(part, found) if value is not None]
    return statistics.median(known) if known else None


def _said(parts: Sequence[tuple[str, float | None]]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in parts if value is not None)

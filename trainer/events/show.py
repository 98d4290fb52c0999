"""Writes an account as a table for people, and as JSON for programs.

This module does no input or output.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from trainer.events.account import Account, StartTimes
from trainer.events.cost import HOUR_SECONDS, Cost
from trainer.events.span import Kind, Phase

MOST_STARTS = 10
WHAT = {
    Kind.PRODUCTIVE: "steps that count",
    Kind.LOST: "steps that were made again after a kill",
    Kind.DOWN: "no pod on a machine: queue, stop, machine lost",
    Kind.IMAGE: "the pod's network, and the pull of its image",
    Kind.CONTAINER: "making the container",
    Kind.START: "from the container to the first step: imports, model, compilation",
    Kind.RENDEZVOUS: "waiting for other nodes and ranks",
    Kind.DATA: "waiting for data",
    Kind.RESTORE: "finding and reading a checkpoint",
    Kind.SAVE: "saves that held training up",
    Kind.EVALUATION: "validation loss",
    Kind.HANG: "no step for much longer than one takes",
    Kind.STOP: "ending the ranks",
}
assert list(WHAT) == list(Kind)


def as_text(account: Account, cost: Cost | None) -> str:
    """Return a table of the kinds, then the starts, the GPUs and, with a price, the cost."""
    if not account.wall_seconds:
        return "no time is measured yet: the run has not begun"
    began = datetime.fromtimestamp(account.begin_unix_seconds, UTC)
    ended = "finished" if account.is_finished else "up to its last sign of life"
    lines = [
        f"step {account.step}, {ended}; began {began:%Y-%m-%d %H:%M:%S} UTC",
        *_table(account, cost),
        f"goodput {account.goodput:.1%}{_other_definitions(account)}",
        *_starts(account.starts),
        _lost(account),
        f"GPU-hours: {sum(account.gpu_seconds.values()) / HOUR_SECONDS:.3f} "
        f"({account.gpus} rank(s), each counted as a GPU)",
    ]
    if cost is not None:
        tokens = cost.per_million_tokens
        per = "" if tokens is None else f"; {tokens:.4f} per 1 M tokens"
        lines.append(
            f"cost at {cost.price_per_gpu_hour:g} per GPU-hour: {cost.total:.2f}, of which "
            f"{cost.kinds[Kind.LOST]:.2f} for lost work{per}"
        )
    if account.paused_seconds:
        lines.append(
            f"{_seconds(account.paused_seconds)} are not counted, in which the run was finished "
            "and not yet continued"
        )
    if account.damaged_lines:
        lines.append(f"{account.damaged_lines} line(s) of the event file are damaged and left out")
    return "\n".join(lines)


def _table(account: Account, cost: Cost | None) -> list[str]:
    head = ("KIND", "SECONDS", "SHARE", *(() if cost is None else ("COST",)), "")
    rows: list[tuple[str, ...]] = [head]
    for kind, seconds in account.seconds.items():
        money = () if cost is None else (f"{cost.kinds[kind]:.2f}",)
        share = f"{seconds / account.wall_seconds:.1%}"
        rows.append((kind.value, f"{seconds:.1f}", share, *money, WHAT[kind]))
    money = () if cost is None else (f"{cost.total:.2f}",)
    rows.append(("wall clock", f"{account.wall_seconds:.1f}", "100.0%", *money, ""))
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = list[str]()
    for first, *middle, last in rows:
        cells = [cell.rjust(width) for cell, width in zip(middle, widths[1:-1], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells, last]).rstrip())
    return lines


def _other_definitions(account: Account) -> str:
    if account.nvidia is None or account.google is None:
        return ""
    return f" (as NVIDIA defines it {account.nvidia:.1%}, as Google does {account.google:.1%})"


def _starts(starts: Sequence[StartTimes]) -> list[str]:
    """Return lines for the first start and the newest restarts."""
    lines = [_start("time to first step", start) for start in starts[:1]]
    left_out = max(0, len(starts) - 1 - MOST_STARTS)
    if left_out:
        lines.append(f"{left_out} earlier restarts: see --json")
    for number, start in enumerate(starts[1 + left_out :], 1 + left_out):
        lines.append(_start(f"restart {number} after step {start.step}", start))
    return lines


def _start(what: str, start: StartTimes) -> str:
    unfinished = "" if start.has_stepped else ", no step yet"
    parts = [f"{name} {_seconds(start.phases[name])}" for name in Phase if start.phases[name]]
    reason = f" [{start.reason}]" if start.reason else ""
    return f"{what}{unfinished}: {_seconds(start.seconds)} = {' + '.join(parts)}{reason}"


def _lost(account: Account) -> str:
    lost = f"lost work: {account.lost_steps} steps, {_seconds(account.seconds[Kind.LOST])}"
    if account.is_finished:
        return lost
    unsaved = f"not in a checkpoint yet: {_seconds(account.unsaved_seconds)}"
    return f"{lost}; {unsaved} (the newest is of step {account.saved_step})"


def _seconds(value: float) -> str:
    return f"{value:.1f} s"


def as_json(account: Account, cost: Cost | None) -> str:
    """Return the account as JSON for programs; seconds are rounded to milliseconds."""
    return json.dumps(as_mapping(account, cost), indent=2)


def as_mapping(account: Account, cost: Cost | None) -> dict[str, Any]:
    """Return the account as a mapping for JSON; seconds are rounded to milliseconds."""
    content: dict[str, Any] = {
        "finished": account.is_finished,
        "begin_unix_seconds": round(account.begin_unix_seconds, 3),
        "wall_seconds": round(account.wall_seconds, 3),
        "paused_seconds": round(account.paused_seconds, 3),
        "seconds": {kind.value: round(value, 3) for kind, value in account.seconds.items()},
        "goodput": round(account.goodput, 6),
        "goodput_nvidia": _rounded(account.nvidia),
        "goodput_google": _rounded(account.google),
        "step": account.step,
        "saved_step": account.saved_step,
        "tokens": account.tokens,
        "lost_steps": account.lost_steps,
        "unsaved_seconds": round(account.unsaved_seconds, 3),
        "restarts": max(0, len(account.starts) - 1),
        "starts": [
            {
                "step": start.step,
                "reason": start.reason,
                "has_stepped": start.has_stepped,
                "seconds": round(start.seconds, 3),
                "phases": {phase.value: round(s, 3) for phase, s in start.phases.items()},
            }
            for start in account.starts
        ],
        "gpus": account.gpus,
        "gpu_hours": round(sum(account.gpu_seconds.values()) / HOUR_SECONDS, 6),
        "damaged_lines": account.damaged_lines,
    }
    if cost is not None:
        content["cost"] = {
            "price_per_gpu_hour": cost.price_per_gpu_hour,
            "total": round(cost.total, 6),
            "kinds": {kind.value: round(value, 6) for kind, value in cost.kinds.items()},
            "per_million_tokens": _rounded(cost.per_million_tokens),
        }
    return content


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)

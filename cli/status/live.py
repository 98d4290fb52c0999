"""The status on a terminal, drawn anew in place by the library rich."""

import time
from collections.abc import Callable
from datetime import datetime

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cli.status.look import AWAY, Look
from cli.status.screen import (
    HEAD,
    NO_RUN,
    cost_of_run,
    idle_line,
    machine_lines,
    platform_line,
    reason_of,
    row_of,
    slow_rank_of,
    span_of_seconds,
    transport_of,
    verified_of,
)
from cli.status.storage import bound_lines

STYLES = {
    "training": "green",
    "saving": "green",
    "finished": "green",
    "failed": "bold red",
    "failing": "red",
    "gone": "red",
    "stalled": "red",
    "recovering": "yellow",
    "quiet": "yellow",
    "waiting": "yellow",
    "queued": "yellow",
}
"""How the word for a state looks; others look like the text around them."""


def is_possible(console: Console) -> bool:
    """Whether the console can draw in place."""
    return console.is_terminal and not console.is_dumb_terminal


def drawing(seen: Look, now: datetime, price_per_gpu_hour: float | None = None) -> Group:
    """One screen. Pure.

    Args:
        seen: the platform and the runs.
        now: the API server's time.
        price_per_gpu_hour: None: no cost is shown.
    """
    platform = Text(platform_line(seen.platform))
    if seen.platform.not_ready:
        platform.stylize("red")
    elif seen.platform.silent:
        platform.stylize("yellow")
    machines = [Text(line, "red") for line in machine_lines(seen.platform)]
    machines += [Text(line, "dim") for line in bound_lines(seen.platform.claims)]
    if idle := idle_line(seen.platform, price_per_gpu_hour):
        machines.append(Text(idle, "dim"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in HEAD:
        table.add_column(name, no_wrap=True)
    for run in seen.runs:
        cells = [Text(cell) for cell in row_of(run, now)]
        cells[HEAD.index("STATE")].stylize(STYLES.get(run.state, ""))
        table.add_row(*cells)
    reasons = [
        Text.assemble((f"{run.stack.rpartition('/')[2]}: ", "dim"), reason)
        for run in seen.runs
        if (reason := reason_of(run, now))
    ]
    slow = [
        Text(f"slow rank: {found}", "yellow") for run in seen.runs if (found := slow_rank_of(run))
    ]
    transports = [
        Text(f"transport not as asked: {found}", "yellow")
        for run in seen.runs
        if (found := transport_of(run))
    ]
    verified = [
        Text.assemble((f"{run.stack.rpartition('/')[2]}: ", "dim"), found)
        for run in seen.runs
        if (found := verified_of(run, now))
    ]
    goodput = [
        Text.assemble((f"{run.stack.rpartition('/')[2]}: ", "dim"), f"goodput {account}")
        for run in seen.runs
        if (account := run.progress.goodput)
    ]
    costs = [
        Text.assemble((f"{run.stack.rpartition('/')[2]}: ", "dim"), cost)
        for run in seen.runs
        if (cost := cost_of_run(run, now, price_per_gpu_hour))
    ]
    rest = [Text(f"not seen: {seen.unseen}", "yellow")] if seen.unseen else []
    runs = [table] if seen.runs else [Text(seen.missing or NO_RUN)]
    foot = Text(f"{now.astimezone():%H:%M:%S}; Ctrl-C ends the looking", "dim")
    more = [*verified, *goodput, *costs, *rest, "", foot]
    return Group(platform, *machines, "", *runs, *reasons, *slow, *transports, *more)


def watch(
    look: Callable[[], tuple[Look, datetime]],
    console: Console,
    pause_seconds: float,
    price_per_gpu_hour: float | None = None,
) -> None:
    """Look and draw until a signal ends it; the terminal is as before then.

    A cluster that does not answer for a while leaves the last screen, with the reason below it.

    Args:
        look: the runs, and the API server's time.
        console: the terminal.
        pause_seconds: between two looks.
        price_per_gpu_hour: None: no cost is shown.

    Raises:
        ValueError: the run that was asked for is not there at the first look.
        ApiError, UnreachableError: the first look fails.
    """
    seen, now = look()
    if seen.missing:
        raise ValueError(seen.missing)
    seen_at, problem = time.monotonic(), Text()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(Group(drawing(seen, now, price_per_gpu_hour), problem), refresh=True)
            time.sleep(pause_seconds)
            try:
                seen, now = look()
                seen_at, problem = time.monotonic(), Text()
            except AWAY as reason:
                age = span_of_seconds(time.monotonic() - seen_at)
                problem = Text(f"not seen for {age}: {reason}", "bold red")

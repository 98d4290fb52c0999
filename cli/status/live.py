"""Shows the status on a terminal and redraws it in place, with the library rich."""

import time
from collections.abc import Callable, Iterable
from datetime import datetime

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cli.spans import span_of_seconds
from cli.status.judge import RunStatus
from cli.status.platform_status import PlatformStatus
from cli.status.screen import (
    HEAD,
    NO_RUN,
    cost_of_run,
    idle_line,
    machine_lines,
    own_ranks_of,
    platform_line,
    reason_of,
    row_of,
    slow_rank_of,
    unasked_transport_of,
    verified_of,
)
from cli.status.snapshot import AWAY, Snapshot
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
"""The style of the word for a state. All other states look like the text around them."""

MOST_PROBLEMS = 6  # so many lines are about problems of machines; the runs need the room below


def is_possible(console: Console) -> bool:
    """Whether the console can draw in place."""
    return console.is_terminal and not console.is_dumb_terminal


def drawing(seen: Snapshot, now: datetime, price_per_gpu_hour: float | None) -> Group:
    """Return the content of the screen. This function is pure.

    Args:
        seen: the platform and the runs.
        now: the API server's time.
        price_per_gpu_hour: the price; None to show no cost.
    """
    runs = seen.runs
    unseen = [Text(f"not seen: {seen.unseen}", "yellow")] if seen.unseen else []
    return Group(
        *_platform(seen.platform, price_per_gpu_hour),
        "",
        _table(runs, now) if runs else Text(seen.missing or NO_RUN),
        *_lines(runs, lambda run: reason_of(run, now)),
        *_warnings("slow rank", map(slow_rank_of, runs)),
        *_warnings("transport not as asked", map(unasked_transport_of, runs)),
        *_warnings("ranks not of this run", map(own_ranks_of, runs)),
        *_lines(runs, lambda run: verified_of(run, now)),
        *_lines(runs, lambda run: run.progress.goodput and f"goodput {run.progress.goodput}"),
        *_lines(runs, lambda run: cost_of_run(run, now, price_per_gpu_hour)),
        *unseen,
        "",
        Text(f"{now.astimezone():%H:%M:%S}; Ctrl-C ends it", "dim"),
    )


def _platform(platform: PlatformStatus, price_per_gpu_hour: float | None) -> list[Text]:
    """Return lines about the nodes, problems of machines, the storage, and idle GPUs."""
    first = Text(platform_line(platform))
    if platform.not_ready:
        first.stylize("red")
    elif platform.silent:
        first.stylize("yellow")
    problems = machine_lines(platform)
    if (more := len(problems) - MOST_PROBLEMS) > 0:
        problems[MOST_PROBLEMS:] = [f"  and {more} more: ./disttrain status shows each"]
    lines = [first, *(Text(line, "red") for line in problems)]
    lines += [Text(line, "dim") for line in bound_lines(platform.claims)]
    if idle := idle_line(platform, price_per_gpu_hour):
        lines.append(Text(idle, "dim"))
    return lines


def _table(runs: Iterable[RunStatus], now: datetime) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in HEAD:
        table.add_column(name, no_wrap=True)
    for run in runs:
        cells = [Text(cell) for cell in row_of(run, now)]
        cells[HEAD.index("STATE")].stylize(STYLES.get(run.state, ""))
        table.add_row(*cells)
    return table


def _lines(runs: Iterable[RunStatus], text_of: Callable[[RunStatus], str]) -> list[Text]:
    """Return a line for each run with a text that is not empty, after the name of its stack."""
    return [
        Text.assemble((f"{run.short_stack}: ", "dim"), text)
        for run in runs
        if (text := text_of(run))
    ]


def _warnings(what: str, found: Iterable[str]) -> list[Text]:
    """Return a line for each text that is not empty."""
    return [Text(f"{what}: {text}", "yellow") for text in found if text]


def watch(
    take: Callable[[], tuple[Snapshot, datetime]],
    console: Console,
    pause_seconds: float,
    price_per_gpu_hour: float | None = None,
) -> None:
    """Read the state of the cluster and draw the screen until a signal ends it; then restore the
    terminal.

    If the cluster does not answer for a while, the last screen stays, with the reason below it.

    Args:
        take: takes a snapshot, and returns it with the API server's time.
        console: the terminal.
        pause_seconds: the time between two snapshots.
        price_per_gpu_hour: the price; None to show no cost.

    Raises:
        ValueError: the first snapshot does not have the run that the user has named.
        ApiError, UnreachableError: the first snapshot fails.
    """
    seen, now = take()
    if seen.missing:
        raise ValueError(seen.missing)
    seen_at, problem = time.monotonic(), Text()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(Group(drawing(seen, now, price_per_gpu_hour), problem), refresh=True)
            time.sleep(pause_seconds)
            try:
                seen, now = take()
                seen_at, problem = time.monotonic(), Text()
            except AWAY as reason:
                age = span_of_seconds(time.monotonic() - seen_at)
                problem = Text(f"not seen for {age}: {reason}", "bold red")

"""Formats the status as text for people and as JSON for programs. This module is pure."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from cli.columns import columns
from cli.spans import span_of_seconds
from cli.status.cost import cost_so_far, cost_text
from cli.status.judge import RunStatus
from cli.status.platform_status import PlatformStatus
from cli.status.storage import bound_lines, claim_lines
from infra.kube.say import first_of

HEAD = ("STACK", "STATE", "STEP", "LOSS", "TOKENS/S", "MFU", "ETA", "SAVED")
NOT_KNOWN = "-"
NO_RUN = "no run is on this platform"
MOST_NODES = 6  # so many nodes are named in a line; JSON has each


def as_text(
    platform: PlatformStatus,
    runs: Sequence[RunStatus],
    unseen: str,
    now: datetime,
    price_per_gpu_hour: float | None = None,
    *,
    missing: str = "",
) -> str:
    """Return the whole text: the nodes, and for each run a line and the reason for its state.

    Args:
        platform: the nodes, GPUs and claims.
        runs: all runs that were found.
        unseen: which runs could not be looked for; empty if all could.
        now: the API server's time.
        price_per_gpu_hour: the price; None to show no cost.
        missing: the text if there are no runs; empty for the usual one.
    """
    lines = [platform_line(platform), *machine_lines(platform), *bound_lines(platform.claims)]
    if idle := idle_line(platform, price_per_gpu_hour):
        lines.append(idle)
    if not runs:
        lines.append(missing or NO_RUN)
    head, *rows = columns([HEAD, *(row_of(run, now) for run in runs)])
    lines += [head] if runs else []
    for run, row in zip(runs, rows, strict=True):
        lines.append(row)
        if reason := reason_of(run, now):
            lines.append(f"  {reason}")
        if slow := slow_rank_of(run):
            lines.append(f"  slow rank: {slow}")
        if transport := unasked_transport_of(run):
            lines.append(f"  transport not as asked: {transport}")
        if own_ranks := own_ranks_of(run):
            lines.append(f"  ranks not of this run: {own_ranks}")
        if verified := verified_of(run, now):
            lines.append(f"  {verified}")
        if goodput := run.progress.goodput:
            lines.append(f"  goodput {goodput}")
        if cost := cost_of_run(run, now, price_per_gpu_hour):
            lines.append(f"  {cost}")
    if unseen:
        lines.append(f"not seen: {unseen}")
    return "\n".join(lines)


def platform_line(platform: PlatformStatus) -> str:
    """Return a line such as `3 nodes, all Ready; 6 of 8 GPUs in use`."""
    if platform.nodes is None:
        return f"nodes: not seen: {platform.unseen}"
    count = f"{platform.nodes} node{'' if platform.nodes == 1 else 's'}"
    silent = [
        f"{name} {silence_text(seconds)}"
        for name, seconds in platform.silent.items()
        if name not in platform.not_ready
    ]
    not_ready = f"not Ready: {first_of(platform.not_ready, MOST_NODES)}"
    wrong = [*([not_ready] if platform.not_ready else []), first_of(silent, MOST_NODES)]
    well = "Ready" if platform.nodes == 1 else "all Ready"
    ready = ", ".join(filter(None, wrong)) or well
    if not platform.gpus:
        gpus = "no GPUs offered"
    elif platform.gpus_used is None:
        gpus = f"{platform.gpus} GPUs offered; how many are in use was not seen: {platform.unseen}"
    else:
        gpus = f"{platform.gpus_used} of {platform.gpus} GPUs in use"
    return f"{count}, {ready}; {gpus}"


def silence_text(seconds: float) -> str:
    """Return a text about a node that is silent, and that Kubernetes still calls Ready."""
    return f"has not reported for {span_of_seconds(seconds)}"


def machine_lines(platform: PlatformStatus) -> list[str]:
    """Return a line for each problem of a machine or of a claim."""
    machines = [f"  node {found.node}: {found.text}" for found in platform.findings]
    return [*machines, *claim_lines(platform.claims)]


def idle_line(platform: PlatformStatus, price_per_gpu_hour: float | None) -> str:
    """Return which nodes have idle GPUs, and with a price what they cost in an hour.

    The line is empty if all GPUs are in use. It is also empty for a single node without a price,
    because the line about the platform already says it.
    """
    idle = platform.gpus_idle
    if not idle or (platform.nodes == 1 and price_per_gpu_hour is None):
        return ""
    each = first_of([f"{count} on {name}" for name, count in sorted(idle.items())], MOST_NODES)
    if price_per_gpu_hour is None:
        return f"  idle GPUs: {each}"
    cost = sum(idle.values()) * price_per_gpu_hour
    return f"  idle GPUs: {each}; {cost:.2f} an hour at {price_per_gpu_hour:g} per GPU-hour"


def as_json(
    platform: PlatformStatus,
    runs: Sequence[RunStatus],
    unseen: str,
    now: datetime,
    price_per_gpu_hour: float | None = None,
) -> str:
    """Return JSON for programs: times are in ISO 8601, and unknown values are null or empty."""
    costs = [cost_so_far(run.progress, price_per_gpu_hour) for run in runs]
    content = {
        "time": now,
        "platform": asdict(platform),
        "runs": [
            {**asdict(run), "cost": asdict(cost) if cost else None}
            for run, cost in zip(runs, costs, strict=True)
        ],
        "unseen": unseen,
    }
    return json.dumps(content, indent=2, default=lambda time: time.isoformat())


def span(then: datetime, now: datetime) -> str:
    """Return the time between two times, as a text of `span_of_seconds`."""
    return span_of_seconds((now - then).total_seconds())


def row_of(run: RunStatus, now: datetime) -> tuple[str, ...]:
    """Return the cells of a run's row, one for each column of HEAD."""
    progress = run.progress
    total = "" if progress.of is None else f"/{progress.of}"
    step = NOT_KNOWN if progress.step is None else f"{progress.step}{total}"
    saved = NOT_KNOWN
    if progress.saved_step is not None:
        when = f", {span(progress.saved_at, now)} ago" if progress.saved_at else ""
        saved = f"step {progress.saved_step}{when}"
    speed, mfu, eta = progress.tokens_per_second, progress.mfu, progress.eta
    shown = (speed, mfu, eta) if run.is_training else ("", "", "")
    return (
        run.short_stack,
        run.state,
        step,
        progress.loss or NOT_KNOWN,
        *(text or NOT_KNOWN for text in shown),
        saved,
    )


def slow_rank_of(run: RunStatus) -> str:
    """Return the slow rank of a run that trains; empty otherwise, because it is out of date."""
    return run.progress.slow_rank if run.is_training else ""


def verified_of(run: RunStatus, now: datetime) -> str:
    """Return a text about the last verified checkpoint; empty if no line about one was seen."""
    progress = run.progress
    if progress.verified_step is None:
        return ""
    when = f"{span(progress.verified_at, now)} ago, " if progress.verified_at else ""
    return f"verified: step {progress.verified_step}, {when}by {progress.verified_by}"


def unasked_transport_of(run: RunStatus) -> str:
    """Return the transport that was not asked for; empty for a run that is over."""
    return "" if run.is_over else run.progress.transport


def own_ranks_of(run: RunStatus) -> str:
    """Return what is wrong with ranks that a program has started; empty for a run that is over."""
    return "" if run.is_over else run.progress.own_ranks


def cost_of_run(run: RunStatus, now: datetime, price_per_gpu_hour: float | None) -> str:
    """Return the cost of the run up to its pod's last line about it; empty without a price."""
    if price_per_gpu_hour is None:
        return ""
    cost = cost_so_far(run.progress, price_per_gpu_hour)
    if cost is None:
        return "cost not seen here: ./disttrain goodput computes it"
    when = f" (as of {span(cost.at, now)} ago)" if cost.at else ""
    return f"cost {cost_text(cost)}{when}"


def reason_of(run: RunStatus, now: datetime) -> str:
    """Return why the run is in its state, and for how long; empty if there is no reason."""
    since = f" (for {span(run.since, now)})" if run.since else ""
    return f"{run.detail}{since}" if run.detail else ""

"""The status as text for people, and as JSON for programs. Pure."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from cli.columns import columns
from cli.spans import span_of_seconds
from cli.status.cost import cost_so_far, cost_text
from cli.status.judge import PlatformStatus, RunStatus
from cli.status.storage import bound_lines, claim_lines

HEAD = ("STACK", "STATE", "STEP", "LOSS", "TOKENS/S", "MFU", "ETA", "SAVED")
NOT_KNOWN = "-"
NO_RUN = "no run is on this platform"
MOVING = ("training",)
OVER = ("finished", "failed", "stopped", "suspended", "gone")


def as_text(
    platform: PlatformStatus,
    runs: Sequence[RunStatus],
    unseen: str,
    now: datetime,
    price_per_gpu_hour: float | None = None,
    *,
    missing: str = "",
) -> str:
    """One screen: the nodes, a line for each run, and below it the reason for its state.

    Args:
        platform: the nodes.
        runs: all runs that were found.
        unseen: which runs could not be looked for; empty where all could.
        now: the API server's time.
        price_per_gpu_hour: None: no cost is shown.
        missing: said where there are no runs.
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
        if transport := transport_of(run):
            lines.append(f"  transport not as asked: {transport}")
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
    """`3 nodes, all Ready; 6 of 8 GPUs in use`."""
    if platform.nodes is None:
        return f"nodes: not seen: {platform.unseen}"
    count = f"{platform.nodes} node{'' if platform.nodes == 1 else 's'}"
    silent = [
        f"{name} {silence_text(seconds)}"
        for name, seconds in platform.silent.items()
        if name not in platform.not_ready
    ]
    if platform.not_ready:
        ready = ", ".join([f"not Ready: {', '.join(platform.not_ready)}", *silent])
    elif silent:
        ready = ", ".join(silent)
    else:
        ready = "Ready" if platform.nodes == 1 else "all Ready"
    if not platform.gpus:
        gpus = "no GPUs offered"
    elif platform.gpus_used is None:
        gpus = f"{platform.gpus} GPUs offered; how many are in use was not seen: {platform.unseen}"
    else:
        gpus = f"{platform.gpus_used} of {platform.gpus} GPUs in use"
    return f"{count}, {ready}; {gpus}"


def silence_text(seconds: float) -> str:
    """What a node does that Kubernetes has not missed yet."""
    return f"has not reported for {span_of_seconds(seconds)}"


def machine_lines(platform: PlatformStatus) -> list[str]:
    """A line for each thing that is wrong with a machine, or with a claim."""
    machines = [f"  node {found.node}: {found.text}" for found in platform.findings]
    return [*machines, *claim_lines(platform.claims)]


def idle_line(platform: PlatformStatus, price_per_gpu_hour: float | None = None) -> str:
    """Which nodes have GPUs that nobody uses, and with a price what an hour of that costs.

    Empty where all are in use, and without a price for one node: the first line says it then.
    """
    idle = platform.gpus_idle
    if not idle or (platform.nodes == 1 and price_per_gpu_hour is None):
        return ""
    each = ", ".join(f"{count} on {name}" for name, count in sorted(idle.items()))
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
    """JSON for programs: times in ISO 8601; what is not known is null or empty."""
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
    """The time between the two, as `span_of_seconds` has it."""
    return span_of_seconds((now - then).total_seconds())


def row_of(run: RunStatus, now: datetime) -> tuple[str, ...]:
    """A cell for each word of HEAD."""
    progress = run.progress
    total = "" if progress.of is None else f"/{progress.of}"
    step = NOT_KNOWN if progress.step is None else f"{progress.step}{total}"
    saved = NOT_KNOWN
    if progress.saved_step is not None:
        when = f", {span(progress.saved_at, now)} ago" if progress.saved_at else ""
        saved = f"step {progress.saved_step}{when}"
    moves = run.state in MOVING
    speed, mfu, eta = progress.tokens_per_second, progress.mfu, progress.eta
    shown = (speed, mfu, eta) if moves else ("", "", "")
    return (
        run.stack.rpartition("/")[2],
        run.state,
        step,
        progress.loss or NOT_KNOWN,
        *(text or NOT_KNOWN for text in shown),
        saved,
    )


def slow_rank_of(run: RunStatus) -> str:
    """The slow rank of a run that moves; in any other run it was slow long ago."""
    return run.progress.slow_rank if run.state in MOVING else ""


def verified_of(run: RunStatus, now: datetime) -> str:
    """The newest checkpoint that something has verified since, and when; empty if none was seen."""
    progress = run.progress
    if progress.verified_step is None:
        return ""
    when = f"{span(progress.verified_at, now)} ago, " if progress.verified_at else ""
    return f"verified: step {progress.verified_step}, {when}by {progress.verified_by}"


def transport_of(run: RunStatus) -> str:
    """The one that was not asked for, of a run that has ranks."""
    return "" if run.state in OVER else run.progress.transport


def cost_of_run(run: RunStatus, now: datetime, price_per_gpu_hour: float | None) -> str:
    """What the run has cost, by the line of its pod and no later; empty without a price."""
    if price_per_gpu_hour is None:
        return ""
    cost = cost_so_far(run.progress, price_per_gpu_hour)
    if cost is None:
        return "cost not seen here: ./disttrain goodput reckons it"
    when = f" (as of {span(cost.at, now)} ago)" if cost.at else ""
    return f"cost {cost_text(cost)}{when}"


def reason_of(run: RunStatus, now: datetime) -> str:
    """Why the run is in its state and since when; empty where there is nothing to say."""
    since = f" (for {span(run.since, now)})" if run.since else ""
    return f"{run.detail}{since}" if run.detail else ""

"""Makes what the page shows of one run: its ranks and pods, its goodput and its log lines.

This module is pure.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from cli.dashboard.transport import transport_of
from cli.logs.explain import explain
from cli.logs.labels import label
from cli.logs.line import Line
from cli.pod_facts import RANKS, node_of, number_told
from infra.kube.objects import Json, machine_of, name_of, part, parts
from infra.kube.pods.report import report_pod
from trainer.events.account import account_of_file
from trainer.events.event import Events
from trainer.events.show import WHAT, as_mapping

# What trainer/watch/slow.py writes about the rank that slows the others down.
SLOW_RANK = re.compile(
    r"rank (?P<rank>\d+) on node \d+ takes (?P<factor>\S+) as long as the others: "
    r"(?P<cause>.*) \(.*"
)


def rank_rows(
    pods: Sequence[Json], now: datetime, tokens_per_second: float | None = None, slow_rank: str = ""
) -> list[dict[str, Any]]:
    """Return a row for each rank of each pod, in the order of the ranks.

    Args:
        pods: the training pods of the run.
        now: the API server's time.
        tokens_per_second: the speed of all ranks together; None if it is not known.
        slow_rank: what the run's last step line says about the rank that slows the others down;
            empty if no rank does.
    """
    slow = SLOW_RANK.fullmatch(slow_rank)
    rows: list[dict[str, Any]] = []
    for pod in sorted(pods, key=lambda pod: (node_of(pod), name_of(pod))):
        report, status = report_pod(pod), part(pod, "status")
        started = str(status.get("startTime") or "")
        age = (now - datetime.fromisoformat(started)).total_seconds() if started else None
        shown = {
            "pod": report.name,
            "node": node_of(pod),
            "machine": machine_of(pod),
            "state": "Ready" if report.ready else report.state.removeprefix(f"{report.name} "),
            "is_ready": report.ready,
            "problem": report.problem or report.stuck,
            "restarts": sum(
                int(each.get("restartCount") or 0) for each in parts(status, "containerStatuses")
            ),
            "age_seconds": None if age is None else max(0.0, age),
        }
        count = number_told(pod, RANKS) or 1  # 1 if the pod does not have the variable
        rows += [{**shown, "rank": node_of(pod) * count + number} for number in range(count)]
    for row in rows:
        # All ranks take part in every step, so each has the same share of the speed.
        row["tokens_per_second"] = tokens_per_second and tokens_per_second / len(rows)
        is_slow = slow is not None and int(slow["rank"]) == row["rank"]
        row["slow"] = f"{slow['factor']} as long: {slow['cause']}" if slow and is_slow else ""
    return rows


def goodput_of(events: Events) -> dict[str, Any]:
    """Return where the run's time went, and the transport between its ranks.

    `events` are those of node 0.
    """
    account = account_of_file(events)
    shown = as_mapping(account, None)
    del shown["starts"]  # only `./disttrain goodput` shows the single starts
    kinds = [
        {"kind": kind.value, "what": what, "seconds": round(account.seconds[kind], 3)}
        for kind, what in WHAT.items()
    ]
    return {**shown, "kinds": kinds, "transport": transport_of(events)}


def log_of(lines: Sequence[Line], notes: Sequence[str]) -> dict[str, Any]:
    """Return log lines as the page shows them, with what they mean.

    Args:
        lines: the lines, in the order of time.
        notes: sentences about what could not be read.
    """
    explained: set[tuple[int, int | None, str]] = set()
    shown: list[dict[str, Any]] = []
    for line in lines:
        meaning = explain(line.text)
        if meaning and (line.node, line.rank, meaning) in explained:
            meaning = ""
        elif meaning:
            explained.add((line.node, line.rank, meaning))
        row: dict[str, Any] = {
            "at": line.at,
            "node": line.node,
            "rank": line.rank,
            # The node's own lines already begin with the label.
            "text": line.text.removeprefix(f"{label(line)} "),
        }
        shown.append({**row, "meaning": meaning} if meaning else row)
    return {"lines": shown, "notes": list(notes)}

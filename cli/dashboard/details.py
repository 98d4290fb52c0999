"""What the page shows of one run: its ranks and pods, its goodput, its lines. Pure."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from cli.dashboard.transport import transport_of
from cli.logs.explain import explain
from cli.logs.labels import label
from cli.logs.line import Line
from cli.logs.pod_logs import node_of
from cli.pod_variables import RANKS, number_told
from infra.kube.objects import Json, name_of, part, parts
from infra.kube.pods.report import report_pod
from trainer.events.account import account_of_file
from trainer.events.event import Events
from trainer.events.show import WHAT, as_mapping

# What trainer/watch/slow.py writes of the rank that holds up the others.
SLOW_RANK = re.compile(
    r"rank (?P<rank>\d+) on node \d+ takes (?P<factor>\S+) as long as the others: "
    r"(?P<cause>.*) \(.*"
)


def rank_rows(
    pods: Sequence[Json], now: datetime, tokens_per_second: float | None = None, slow_rank: str = ""
) -> list[dict[str, Any]]:
    """A row for each rank of each pod, in the order of the ranks.

    Args:
        pods: of the run's training.
        now: the API server's time.
        tokens_per_second: of all ranks together; None where that is not known.
        slow_rank: what the run's last line says of the rank that holds up the others; empty where
            none does.
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
            "machine": str(part(pod, "spec").get("nodeName") or ""),
            "state": "Ready" if report.ready else report.state.removeprefix(f"{report.name} "),
            "is_ready": report.ready,
            "problem": report.problem or report.stuck,
            "restarts": sum(
                int(each.get("restartCount") or 0) for each in parts(status, "containerStatuses")
            ),
            "age_seconds": None if age is None else max(0.0, age),
        }
        count = number_told(pod, RANKS) or 1  # where it does not say
        rows += [{**shown, "rank": node_of(pod) * count + number} for number in range(count)]
    for row in rows:
        # The ranks make their steps together, so each has the same share of the speed.
        row["tokens_per_second"] = tokens_per_second and tokens_per_second / len(rows)
        is_slow = slow is not None and int(slow["rank"]) == row["rank"]
        row["slow"] = f"{slow['factor']} as long: {slow['cause']}" if slow and is_slow else ""
    return rows


def goodput_of(content: bytes) -> dict[str, Any]:
    """Where the time went, and how the ranks reach each other; `content`: node 0's event file."""
    events = Events.of(content)
    account = account_of_file(events)
    shown = as_mapping(account, None)
    del shown["starts"]  # ./disttrain goodput shows them
    kinds = [
        {"kind": kind.value, "what": what, "seconds": round(account.seconds[kind], 3)}
        for kind, what in WHAT.items()
    ]
    return {**shown, "kinds": kinds, "transport": transport_of(events)}


def log_of(lines: Sequence[Line], notes: Sequence[str]) -> dict[str, Any]:
    """Lines as the page shows them, with what they mean.

    Args:
        lines: in the order of time.
        notes: what could not be read, in sentences.
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
            "text": line.text.removeprefix(f"{label(line)} "),  # the node's own begin with it
        }
        shown.append({**row, "meaning": meaning} if meaning else row)
    return {"lines": shown, "notes": list(notes)}

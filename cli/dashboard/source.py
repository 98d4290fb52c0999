"""Answers the page's requests for its parts.

An answer has what is known, how old it is, and what could not be read. All queries run in the
background and their results are kept, so an answer never waits for the cluster.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from cli.dashboard.details import rank_rows
from cli.dashboard.kept import Kept, View
from cli.dashboard.queries import Cluster, Queries
from cli.dashboard.run_rows import Row, rows_of
from cli.runs.table import Run
from cli.status.screen import machine_lines, platform_line, slow_rank_of
from cli.status.snapshot import Snapshot

CLUSTER_SECONDS = 3.0
VOLUME_SECONDS = 15.0
CURVES_SECONDS = 5.0
LOGS_SECONDS = 3.0
GOODPUT_SECONDS = 15.0
SAMPLE_SECONDS = 600.0
NO_FOLDER = "which folder of the volume is this run's was not seen: its configuration is not there"
ELSEWHERE = "the run is in namespace {}; this page only reads the volume of another namespace"

Answer = dict[str, Any]


class UnknownError(Exception):
    """There is no such part of the page, or no such run."""


class Source:
    """Answers the page's requests.

    Args:
        queries: makes the queries.
        namespace: the namespace of the volume.
        keep: makes the object that repeats a query and keeps its result; tests give one without
            threads.
    """

    def __init__(
        self,
        queries: Queries,
        namespace: str,
        keep: Callable[[Callable[[], Any], float], Kept] = Kept,
    ) -> None:
        self._queries, self._namespace, self._keep = queries, namespace, keep
        self._cluster = keep(queries.cluster, CLUSTER_SECONDS)
        self._volume = keep(queries.volume, VOLUME_SECONDS)
        self._kept: dict[tuple[str, str], Kept] = {}

    def see(self, part: str, run_id: str) -> Answer:
        """Return one part of the page.

        Args:
            part: `overview`; or of a run `ranks`, `curves`, `goodput`, `logs` or `sample`.
            run_id: the id of the run; it is ignored for `overview`.

        Raises:
            UnknownError: there is no such part, or no such run.
        """
        cluster, volume = self._cluster.see(), self._volume.see()
        rows = _rows(cluster, volume)
        if part == "overview":
            return _overview(cluster, volume, rows)
        row = next((row for row in rows if row.id == run_id), None)
        if row is None:
            raise UnknownError(f"run {run_id!r} is not there (any more)")
        if part == "ranks":
            return {**cluster.as_mapping(), "content": _ranks(cluster, row)}
        kept = self._of_run(part, row)
        if isinstance(kept, str):
            return {**View(problem=kept).as_mapping(), "content": None}
        view = kept.see()
        return {**view.as_mapping(), "content": view.content}

    def _of_run(self, part: str, row: Row) -> Kept | str:
        """Return the object that keeps this part of a run; or why the part cannot be read."""
        queries, name = self._queries, row.run_name
        if part == "logs":  # logs can be read without the run's folder
            return self._kept_as(part, row, partial(queries.logs, row), LOGS_SECONDS)
        ways: dict[str, tuple[Callable[[str], Any], float]] = {
            "curves": (queries.curves, CURVES_SECONDS),
            "goodput": (queries.goodput, GOODPUT_SECONDS),
            "sample": (queries.sample, SAMPLE_SECONDS),
        }
        if part not in ways:
            raise UnknownError(f"the page has no part {part!r}")
        if not name:
            is_here = row.namespace == self._namespace
            return NO_FOLDER if is_here else ELSEWHERE.format(row.namespace)
        way, seconds = ways[part]
        return self._kept_as(part, row, partial(way, name), seconds)

    def _kept_as(self, part: str, row: Row, query: Callable[[], Any], seconds: float) -> Kept:
        key = (part, f"{row.id} {row.run_name}")  # the stack may get a run with another name
        return self._kept.setdefault(key, self._keep(query, seconds))


def _now(cluster: Cluster) -> datetime:
    """Return the time by the API server's clock."""
    return datetime.now().astimezone() + timedelta(seconds=cluster.ahead_seconds)


def _rows(cluster: View, volume: View) -> list[Row]:
    if not isinstance(cluster.content, Cluster):
        return []  # without the records it is not known which runs belong to stacks
    seen = cluster.content
    runs = [_older(run, volume.age_seconds or 0.0) for run in volume.content or ()]
    statuses = [
        (status, record)
        for status, (record, _) in zip(seen.snapshot.runs, seen.snapshot.found, strict=True)
    ]
    return rows_of(statuses, seen.owners, runs, _now(seen))


def _older(run: Run, seconds: float) -> Run:
    if run.checkpoint_age_seconds is None:
        return run
    return replace(run, checkpoint_age_seconds=run.checkpoint_age_seconds + seconds)


def _platform(seen: Snapshot) -> str:
    machines = [line.strip() for line in machine_lines(seen.platform)]
    return "; ".join([platform_line(seen.platform), *machines])


def _overview(cluster: View, volume: View, rows: list[Row]) -> Answer:
    seen = cluster.content if isinstance(cluster.content, Cluster) else None
    return {
        "cluster": cluster.as_mapping(),
        "volume": volume.as_mapping(),
        "platform": _platform(seen.snapshot) if seen else "",
        "unseen": seen.snapshot.unseen if seen else "",
        "runs": [{"id": row.id, **row.shown} for row in rows],
    }


def _ranks(cluster: View, row: Row) -> list[dict[str, Any]] | None:
    if not isinstance(cluster.content, Cluster):
        return None
    snapshot = cluster.content.snapshot
    for status, (record, pods) in zip(snapshot.runs, snapshot.found, strict=True):
        if record.owner == row.owner:
            speed = row.shown.get("tokens_per_second")  # None if the run does not train
            return rank_rows(pods, _now(cluster.content), speed, slow_rank_of(status))
    return rank_rows([], _now(cluster.content))

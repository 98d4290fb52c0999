"""Each part of the page shows what is known of the chosen run, or the reason why it cannot be
seen.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from cli.dashboard.kept import Kept
from cli.dashboard.queries import Cluster, Queries
from cli.dashboard.run_rows import Row
from cli.dashboard.source import Source, UnknownError
from cli.runs.table import Run
from cli.status.platform_status import PlatformStatus
from cli.status.snapshot import Snapshot
from infra.kube.errors import TaskError
from tests.browser.recorded import FOLDERS, pods, status
from tests.cli.records import RECORD


class Recorded:
    """A stand-in for the queries to the cluster and the volume, which finds recorded runs."""

    def __init__(self) -> None:
        self.owners = {RECORD.owner: {"dev"}}
        self.record = RECORD
        self.problem = ""

    def cluster(self) -> Cluster:
        if self.problem:
            raise TaskError(self.problem)
        found = replace(status("training"), namespace=self.record.namespace)
        seen = Snapshot(PlatformStatus(1), (found,), "", ((self.record, pods()),))
        return Cluster(seen, self.owners, 0.0)

    def volume(self) -> list[Run]:
        return FOLDERS

    def curves(self, run_name: str) -> dict[str, Any]:
        return {"of": run_name}

    def logs(self, row: Row) -> dict[str, Any]:
        return {"of": row.run_name, "by": row.owner}

    goodput = sample = curves


def source_of(queries: Recorded) -> Source:
    """Return a source whose queries are made at once, in the thread that asks."""

    def keep(query: Callable[[], Any], seconds: float) -> Kept:
        return Kept(query, seconds, start=lambda work: work())

    return Source(cast(Queries, queries), "disttrain", keep)


def ids_of(source: Source) -> list[str]:
    """Return the ids of all runs that the page lists."""
    return [run["id"] for run in source.see("overview", "")["runs"]]


def test_each_part_is_of_the_run_that_is_asked_for() -> None:
    """The curves, log and ranks that the page shows are those of the run that was chosen."""
    source = source_of(Recorded())
    own, wide, _ = ids_of(source)
    assert source.see("curves", own)["content"] == {"of": "dev"}
    assert source.see("curves", wide)["content"] == {"of": "wide"}
    assert source.see("logs", own)["content"] == {"of": "dev", "by": RECORD.owner}
    assert source.see("logs", wide)["content"] == {"of": "wide", "by": ""}
    ranks = source.see("ranks", own)["content"]
    assert [rank["tokens_per_second"] for rank in ranks] == [48210 / 4] * 4
    assert source.see("ranks", wide)["content"] == []


def test_no_run_is_shown_while_the_cluster_is_not_seen() -> None:
    """No run is listed while the cluster cannot be asked, and the reason is shown. The volume alone
    does not tell which runs belong to a stack.
    """
    queries = Recorded()
    queries.problem = "the API server does not answer"
    found = source_of(queries).see("overview", "")
    assert found["runs"] == []
    assert found["cluster"]["problem"] == "the API server does not answer"
    assert found["platform"] == ""


def test_run_without_a_folder_says_so_and_shows_its_lines() -> None:
    """A run whose folder is not known shows its log, and says in place of its curves why there are
    none.
    """
    queries = Recorded()
    queries.owners = {}
    source = source_of(queries)
    run = ids_of(source)[0]
    assert "its configuration is not there" in source.see("curves", run)["problem"]
    assert source.see("logs", run)["content"] == {"of": "", "by": RECORD.owner}


def test_run_of_another_namespace_says_what_is_not_seen() -> None:
    """For a run of another namespace, whose volume the dashboard does not see, the page says so."""
    queries = Recorded()
    queries.owners, queries.record = {}, replace(RECORD, namespace="others")
    source = source_of(queries)
    run = ids_of(source)[0]
    assert "the run is in namespace others" in source.see("goodput", run)["problem"]


@pytest.mark.parametrize(("part", "run"), [("curves", "none"), ("secrets", ""), ("", "")])
def test_what_is_not_there_is_refused(part: str, run: str) -> None:
    """A part or a run that does not exist is refused."""
    source = source_of(Recorded())
    with pytest.raises(UnknownError):
        source.see(part, run or ids_of(source)[0])

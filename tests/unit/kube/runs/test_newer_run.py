"""`./disttrain resume` and `stop` while a `pulumi up` of the same stack changes the run."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from infra.kube.errors import TaskError
from infra.kube.names import OWNER_LABEL, REVISION_LABEL
from infra.kube.record import Record
from infra.kube.runs.steer import resume, stop
from tests.cli.records import RECORD
from tests.unit.kube.runs.gone_run import GONE, Server
from tests.unit.kube.server import api_of

STOPPED = replace(RECORD, workload=GONE.workload)
CHANGED = replace(STOPPED, revision="def", since=STOPPED.since + timedelta(minutes=5))


def job(record: Record, *, suspended: bool) -> Any:
    """Return the workload of this record."""
    labels = {OWNER_LABEL: record.owner, REVISION_LABEL: record.revision}
    about = {"name": record.workload.name, "uid": record.revision, "labels": labels}
    kind = {"apiVersion": "batch/v1", "kind": "Job", "status": {}}
    return {**kind, "metadata": about, "spec": {"suspend": suspended}}


class Meanwhile(Server):
    """A stand-in for a cluster with a stopped run, which changes while the command waits for the
    lock.

    Args:
        after: the record that a `pulumi up` has written by then; None: `pulumi destroy` has removed
            it.
        workload: the workload that exists by then; None: there is none.
    """

    def __init__(self, after: Record | None, workload: Any) -> None:
        super().__init__(STOPPED, "")
        self.workload = job(STOPPED, suspended=True)
        self.after = after, workload
        self.changes = list[str]()

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        if "/leases" in path:
            after, self.workload = self.after
            self.record = after.to_object(after.namespace) if after else None
        elif method != "GET":
            self.changes.append(f"{method} {path}")
            self.workload = None if method == "DELETE" else self.workload
        return super().answer(method, path, query, body)


MEANWHILE = "`pulumi up` or `./disttrain resume` of stack organization/disttrain/dev came first"


def test_newer_workload_is_never_deleted() -> None:
    """`./disttrain resume` fails and changes nothing if a `pulumi up` has changed the run
    meanwhile. Otherwise it would delete the workload of that `up`, whose revision differs from the
    record that the command has read.
    """
    server = Meanwhile(CHANGED, job(CHANGED, suspended=False))
    with pytest.raises(TaskError, match=MEANWHILE):
        resume(api_of(server), STOPPED, "replace", 0)
    assert server.changes == []
    assert server.now() == replace(CHANGED, version="")


@pytest.mark.parametrize("workload", [None, job(CHANGED, suspended=False)])
def test_stop_leaves_a_newer_run(workload: Any) -> None:
    """`./disttrain stop` fails and changes nothing if a `pulumi up` has changed the run meanwhile,
    even if its workload is not made yet.
    """
    server = Meanwhile(CHANGED, workload)
    with pytest.raises(TaskError, match=MEANWHILE):
        stop(api_of(server), STOPPED)
    assert server.changes == []


def test_destroyed_run_gets_no_record() -> None:
    """`./disttrain resume` writes no record for a run that was destroyed meanwhile. Otherwise the
    record would keep the name and the place of a run that no longer exists.
    """
    server = Meanwhile(None, None)
    with pytest.raises(TaskError, match="its run has been removed meanwhile"):
        resume(api_of(server), STOPPED, "replace", 0)
    assert server.changes == []


def test_workload_deleted_meanwhile_is_reported() -> None:
    """`./disttrain resume` fails if somebody has deleted the workload meanwhile, and does not say
    that the run goes on.
    """
    server = Meanwhile(STOPPED, None)
    with pytest.raises(TaskError, match="somebody has deleted it"):
        resume(api_of(server), STOPPED, "replace", 0)
    assert server.changes == []

"""How long a hand-over waits for the lock of a namespace that another one holds."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from infra.kube.errors import ApiError, TaskError
from infra.kube.job import Job
from infra.kube.record import COLLECTION
from infra.kube.runs import hand_over, steer, suspending
from tests.cli.records import RECORD
from tests.unit.kube.server import ApiServer, Json, api_of

RECORDS = COLLECTION.format("disttrain")
GRACE_SECONDS = 3000  # the grace period of another run


class Server(ApiServer):
    """A stand-in for a cluster with the record of another run, which may save for long, and a
    record that cannot be read.
    """

    may_list = True

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        if path != RECORDS:
            return {}
        if not self.may_list:
            raise ApiError(403, "no")
        slow = replace(RECORD, owner="9", grace_seconds=GRACE_SECONDS).to_object("disttrain")
        return {"items": [slow, {"metadata": {"name": "broken"}}]}


def hands_over(server: ApiServer) -> None:
    """Run the task `hand-over` of a run with a grace period of 120 seconds."""
    fields: dict[str, Any] = {
        "workload": RECORD.workload.to_json(),
        "revision": "abc",
        "gpus": 1,
        "gpus_total": 1,
        "suspend": {},
        "resume": {},
        "done": [],
        "failed": [],
        "when_busy": "replace",
        "request": "1",
        "ttl": {},
        "grace_seconds": 120,
        "wait_timeout_seconds": 10,
    }
    api = api_of(server)
    hand_over.create(Job(api.access, "disttrain", "1", "dev", fields), api)


def stops(server: ApiServer) -> None:
    """Run `./disttrain stop` for a run with a grace period of 120 seconds."""
    steer.stop(api_of(server), replace(RECORD, grace_seconds=120))


@pytest.mark.parametrize("module", [hand_over, steer])
@pytest.mark.parametrize(("may_list", "grace"), [(True, GRACE_SECONDS), (False, 120)])
def test_lock_is_waited_for_as_long_as_runs_save(
    module: Any, may_list: bool, grace: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait for the lock includes the longest grace period of all runs, because the holder of
    the lock may wait for pods that save. If the records may not be listed, the run's own grace
    period counts. Otherwise the wait would fail for a long `terminationGraceSeconds`, although
    nothing is wrong.
    """
    server = Server()
    server.may_list = may_list
    limits = list[float]()

    def held(*given: Any) -> None:
        limits.append(given[3])
        raise TaskError("enough")

    monkeypatch.setattr(module, "held", held)
    does: Callable[[ApiServer], None] = hands_over if module is hand_over else stops
    with pytest.raises(TaskError, match="enough"):
        does(server)
    assert limits == [suspending.LOCK_LIMIT_SECONDS + grace]
    assert limits[0] > grace + 60

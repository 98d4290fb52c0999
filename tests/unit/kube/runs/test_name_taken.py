"""A new run whose workload would have the name of another stack's run, which has no workload
now.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from infra.kube.errors import TaskError
from infra.kube.record import Record, record_name, record_path
from tests.cli.records import NOW
from tests.unit.kube.runs.gone_run import GONE, OTHER, Server, hand_over_of

HAD_THE_NAME = replace(OTHER, workload=GONE.workload, since=NOW - timedelta(days=2))
OWN_PATH = record_path(GONE.namespace, GONE.owner)


class New(Server):
    """A stand-in for a cluster with the record of the other run. Our run comes up for the first
    time.
    """

    def __init__(self, other: Record) -> None:
        super().__init__(GONE, "", other=other)
        self.ours: Any = None

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        if path == OWN_PATH and self.ours is None:
            return None
        if path.endswith("/configmaps") and method == "POST":
            self.ours = body
            return body
        if path.endswith("/configmaps"):
            asks_for_ours = GONE.owner in query.get("labelSelector", "")
            return {"items": [] if asks_for_ours else [self.other]}
        return super().answer(method, path, query, body)


def test_name_of_another_run_is_refused() -> None:
    """A new run is refused if the run of another stack has the same name, even if that run has no
    workload now. Otherwise `pulumi destroy` of the other stack would delete our workload.
    """
    server = New(HAD_THE_NAME)
    with pytest.raises(TaskError) as refused:
        hand_over_of(server)
    said = str(refused.value)
    assert said.startswith("Job train-indexed in namespace disttrain is not there at the moment")
    assert "pulumi config set instance NAME" in said
    assert "\n  pulumi destroy --stack organization/disttrain/other\n" in said
    assert said.endswith(f"kubectl -n disttrain delete configmap {record_name(OTHER.owner)}")
    assert server.ours is None


def test_run_of_another_name_comes_up() -> None:
    """A new run comes up beside a run with another name."""
    server = New(OTHER)
    hand_over_of(server)
    assert server.ours["metadata"]["name"] == record_name(GONE.owner)


def test_run_that_has_the_name_goes_on() -> None:
    """A run that already shares its name with the run of another stack goes on, and the other run
    is not changed. An older version of the program let both have one name.
    """
    server = Server(GONE, "", other=HAD_THE_NAME)
    owner, revision = {"disttrain.dev/owner": GONE.owner}, {"disttrain.dev/revision": "abc"}
    about = {"name": "train-indexed", "uid": "u1", "labels": owner | revision}
    server.workload = {"metadata": about, "spec": {}, "status": {}}
    hand_over_of(server)
    assert server.changes_of_other == []
    assert server.now().request == "again"

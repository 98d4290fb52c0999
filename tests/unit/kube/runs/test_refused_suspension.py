"""The record of a run whose suspension the API server refuses says nothing of a suspension."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from infra.kube.errors import ApiError, TaskError
from infra.kube.runs.suspending import suspend_run
from infra.kube.workload import Workload
from infra.workloads import volcano
from tests.cli.records import RECORD
from tests.unit.kube.runs.gone_run import Server
from tests.unit.kube.server import api_of

VOLCANO = Workload(volcano.API_VERSION, "Job", "train-volcano")
BY_COMMAND = replace(RECORD, workload=VOLCANO, suspend={"command": "AbortJob", "phases": ["Abort"]})


class Refused(Server):
    """A stand-in for a cluster in which these credentials may write only the record of the run."""

    owner_of_workload = RECORD.owner

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        if method != "GET" and not path.endswith(self.record["metadata"]["name"]):
            raise ApiError(403, "may not")
        if path.endswith(("/batch/v1", "/batch.volcano.sh/v1alpha1")):
            return {"resources": [{"kind": "Job", "name": "jobs", "namespaced": True}]}
        if "/jobs/" in path:
            workload = self.now().workload
            kind = {"apiVersion": workload.api_version, "kind": workload.kind}
            labels = {"disttrain.dev/owner": self.owner_of_workload}
            about = {"name": workload.name, "uid": "u1", "labels": labels}
            return {**kind, "metadata": about, "spec": {}}
        return super().answer(method, path, query, body)


@pytest.mark.parametrize("record", [RECORD, BY_COMMAND])
@pytest.mark.parametrize("before", ["", "other"])
def test_refused_suspension_leaves_no_note(record: Any, before: str) -> None:
    """If a suspension is refused, the record still has the stack that it named before, or none.
    Otherwise `status` and `up` would name the wrong stack when somebody else suspends the run
    later.
    """
    server = Refused(record, "")
    if before:
        server.record["metadata"]["annotations"]["disttrain.dev/suspended-by"] = before
    api = api_of(server)
    with pytest.raises(ApiError, match="may not"):
        suspend_run(api, record.namespace, server.now(), "dev")
    assert server.now().suspended_by == before


@pytest.mark.parametrize("owner", ["", "somebody-else"])
def test_record_that_names_an_object_of_others_suspends_nothing(owner: str) -> None:
    """Only the workload of the record's own owner is suspended. A record is a ConfigMap, and who
    may write one must not have other people's `up` change an object that is no run of theirs.
    """
    server = Refused(RECORD, "")
    server.owner_of_workload = owner
    with pytest.raises(TaskError, match=r"not of this run.* delete configmap disttrain-run"):
        suspend_run(api_of(server), RECORD.namespace, server.now(), "dev")
    assert server.now().suspended_by == ""

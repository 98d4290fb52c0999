"""Which object a hand-over takes for the former workload of its run, which it deletes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from infra.kube import names
from infra.kube.runs.hand_over_plan import Plan
from infra.kube.runs.own_workload import former_workload
from infra.kube.workload import Workload
from tests.cli.records import RECORD
from tests.unit.kube.runs.gone_run import HAND_OVER, job
from tests.unit.kube.server import ApiServer, Json, api_of

OWN = {names.OWNER_LABEL: RECORD.owner}
OF_WORKLOADS = {**OWN, names.REVISION_LABEL: "r1"}


class Server(ApiServer):
    """A cluster with the record of a run, and with the object that the record names.

    Args:
        workload: what the record names.
        labels: the labels of that object.
    """

    def __init__(self, workload: Workload, labels: Mapping[str, str]) -> None:
        self.record = replace(RECORD, workload=workload).to_object(RECORD.namespace)
        self.workload, self.labels = workload, dict(labels)

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        assert method == "GET", f"{method} {path}"
        if path.endswith(self.record["metadata"]["name"]):
            return self.record
        if path.endswith("/v1"):
            name, namespaced = f"{self.workload.kind.lower()}s", self.workload.kind != "Namespace"
            kind = {"kind": self.workload.kind, "name": name, "namespaced": namespaced}
            return {"resources": [kind]}
        if path.endswith(f"/{self.workload.name}"):
            return {"metadata": {"name": self.workload.name, "labels": self.labels}}
        return None


@pytest.mark.parametrize(
    ("workload", "labels", "is_taken"),
    [
        (Workload("batch/v1", "Job", "train-old"), OF_WORKLOADS, True),
        (Workload("batch/v1", "Job", "train-old"), {names.REVISION_LABEL: "r1"}, False),
        (Workload("v1", "Namespace", "disttrain"), OWN, False),
        (Workload("v1", "PersistentVolumeClaim", "disttrain-pvc"), OWN, False),
    ],
)
def test_only_a_workload_of_this_stack_is_taken_for_the_former(
    workload: Workload, labels: Mapping[str, str], is_taken: bool
) -> None:
    """The record of a run is a ConfigMap, which others may change. If it names another object of
    the stack, such as its namespace or its claim, that is not deleted as the former workload.
    """
    server = Server(workload, labels)
    fields = job(**{**HAND_OVER, "workload": {**HAND_OVER["workload"], "name": "train-new"}})
    found = former_workload(fields, api_of(server), Plan.of(fields), None)
    assert (found is not None) is is_taken

"""The rights that a hand-over needs to read the workloads of other runs in its namespace."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from infra import cluster_check
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings
from infra.kube.api_server.rights import REVIEWS, Need
from infra.kube.errors import ApiError
from infra.kube.record import COLLECTION, SELECTOR
from infra.kube.runs.pods_findings import RunPods
from infra.kube.runs.rights_on_runs import needs_for_runs
from infra.kube.volumes.storage_findings import StorageNeeds
from infra.kube.workload import Workload
from tests.cli.records import RECORD
from tests.unit.kube.server import ApiServer, Json, api_of

NAMESPACE = RECORD.namespace
JOB_SET = Workload("jobset.x-k8s.io/v1alpha2", "JobSet", "train-jobset")
VOLCANO = Workload("batch.volcano.sh/v1alpha1", "Job", "train-volcano")
GONE = Workload("kubeflow.org/v1", "PyTorchJob", "train-pytorchjob")
SERVED = {
    "jobset.x-k8s.io/v1alpha2": {"name": "jobsets", "kind": "JobSet", "namespaced": True},
    "batch.volcano.sh/v1alpha1": {"name": "jobs", "kind": "Job", "namespaced": True},
    "batch/v1": {"name": "jobs", "kind": "Job", "namespaced": True},
}


class Shared(ApiServer):
    """A stand-in for a cluster with a namespace that several stacks share. This user may not read
    JobSets.
    """

    def __init__(self, *workloads: Workload, may_list: bool = True) -> None:
        self.records = [replace(RECORD, workload=each).to_object(NAMESPACE) for each in workloads]
        self.may_list = may_list

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        if path == f"{REVIEWS}/selfsubjectaccessreviews":
            group = body["spec"]["resourceAttributes"].get("group")
            return {"status": {"allowed": group not in ("*", "jobset.x-k8s.io")}}
        if path == f"{REVIEWS}/selfsubjectrulesreviews":
            return {"status": {"resourceRules": []}}
        if path == COLLECTION.format(NAMESPACE):
            if not self.may_list:
                raise ApiError(403, "configmaps is forbidden")
            return {"items": self.records if query.get("labelSelector") == SELECTOR else []}
        group = path.removeprefix("/apis/")
        return {"resources": [SERVED[group]]} if group in SERVED else None


def needs(*workloads: Workload) -> list[tuple[str, str]]:
    """Return the API group and the resource of each kind that has to be readable."""
    found = needs_for_runs(api_of(Shared(*workloads)), NAMESPACE)
    assert {(need.verb, need.namespace) for need in found} <= {("get", NAMESPACE)}
    return [(need.group, need.resource) for need in found]


def test_each_kind_of_run_has_to_be_readable() -> None:
    """The hand-over reads the workload of each run in its namespace, whatever its kind is."""
    jobs = ("batch", "jobs")
    assert needs(RECORD.workload, JOB_SET) == [jobs, ("jobset.x-k8s.io", "jobsets")]
    assert needs(VOLCANO) == [("batch.volcano.sh", "jobs")]


def test_run_that_cannot_be_read_needs_nothing() -> None:
    """A run whose kind the cluster no longer knows has no workload. A record that cannot be read,
    and records that may not be listed, are reported elsewhere.
    """
    assert needs(GONE) == []
    server = Shared(JOB_SET)
    server.records[0]["data"]["workload"] = "nonsense"
    assert needs_for_runs(api_of(server), NAMESPACE) == []
    assert needs_for_runs(api_of(Shared(JOB_SET, may_list=False)), NAMESPACE) == []


def test_preview_lists_rights_on_other_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """If another run is of a kind that this user may not read, `pulumi up` would fail in its
    middle. So the check of the cluster lists the right in a role for an administrator.
    """

    @contextmanager
    def shared(access: Access, seconds: float) -> Iterator[Api]:
        yield api_of(Shared(JOB_SET))

    def nothing(*_: object) -> Findings:
        return Findings()

    monkeypatch.setattr(cluster_check, "read_only_api", shared)
    for check in ("storage_findings", "pods_findings"):
        monkeypatch.setattr(cluster_check, check, nothing)
    volume = StorageNeeds(NAMESPACE, "data", True, "", "ReadWriteMany", "1Gi", 1)
    pod: Json = {"spec": {"containers": [{"name": "trainer", "resources": {}}]}}
    run = RunPods(NAMESPACE, pod, 1, grows=False)
    found = cluster_check.ask(
        Access(kubeconfig="{}"), volume, [Need("", "pods", "get", NAMESPACE)], run
    )
    (problem,) = found.problems
    assert "apiGroups: [jobset.x-k8s.io]" in problem
    assert "verbs: [get]" in problem
    assert cluster_check.ask(Access(kubeconfig="{}"), volume, []).problems == []

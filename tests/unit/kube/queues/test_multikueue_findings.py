"""Queues of Kueue that send their runs to other clusters (MultiKueue)."""

from collections.abc import Mapping
from typing import Any

import pytest

from infra.kube.api_server.findings import Findings
from infra.kube.errors import ApiError
from infra.kube.queues.queue_findings import queue_findings
from tests.unit.kube.server import ApiServer, Json, api_of

KUEUE = "/apis/kueue.x-k8s.io"


class Server(ApiServer):
    """A cluster with a LocalQueue `gpus`, whose ClusterQueue `team` has the AdmissionCheck
    `elsewhere`.

    Args:
        version: the version of Kueue's objects.
        checks: the spec of the ClusterQueue.
        controller: the controller of the AdmissionCheck; empty: the check does not exist.
        may_read: whether these credentials may read the AdmissionCheck.
    """

    def __init__(self, version: str, checks: Json, controller: str, may_read: bool) -> None:
        self.version, self.checks = version, checks
        self.controller, self.may_read = controller, may_read

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        assert method == "GET"
        if path == KUEUE:
            return {"versions": [{"version": self.version}]}
        kind, name = path.removeprefix(f"{KUEUE}/{self.version}/").split("/")[-2:]
        if (kind, name) == ("localqueues", "gpus"):
            return {"metadata": {"name": name}, "spec": {"clusterQueue": "team"}}
        if (kind, name) == ("clusterqueues", "team"):
            return {"metadata": {"name": name}, "spec": self.checks}
        assert (kind, name) == ("admissionchecks", "elsewhere")
        if not self.may_read:
            raise ApiError(403, "no")
        spec = {"controllerName": self.controller}
        return {"metadata": {"name": name}, "spec": spec} if self.controller else None


IN_A_LIST = {"admissionChecks": ["elsewhere"]}
AS_A_RULE = {"admissionChecksStrategy": {"admissionChecks": [{"name": "elsewhere"}]}}
MULTIKUEUE = "kueue.x-k8s.io/multikueue"


def look(version: str, checks: Json, controller: str, *, may_read: bool = True) -> Findings:
    server = Server(version, checks, controller, may_read)
    return queue_findings(api_of(server), "disttrain", "gpus")


@pytest.mark.parametrize(
    ("version", "checks"),
    [("v1beta1", IN_A_LIST), ("v1beta1", AS_A_RULE), ("v1beta2", AS_A_RULE)],
)
def test_queue_to_other_clusters_is_refused(version: str, checks: Json) -> None:
    """A queue is refused if MultiKueue would make its pods in another cluster. Otherwise `pulumi
    up` would wait in vain for pods in this cluster.
    """
    found = look(version, checks, MULTIKUEUE)
    (problem,) = found.problems
    assert problem.startswith(
        "queue: 'gpus' cannot be used: its ClusterQueue team has the AdmissionCheck elsewhere of "
        "MultiKueue, so Kueue makes the pods of a run in another cluster"
    )
    assert "Set a queue without this check" in problem


def test_queue_with_other_checks_is_taken() -> None:
    """A queue is accepted if its check is of another kind, such as one that asks a cloud for
    machines, or does not exist yet.
    """
    for controller in ("kueue.x-k8s.io/provisioning-request", ""):
        assert look("v1beta2", AS_A_RULE, controller) == Findings()


def test_checks_that_may_not_be_read_refuse_nothing() -> None:
    """A queue is accepted if the credentials may not read its checks."""
    assert look("v1beta2", AS_A_RULE, MULTIKUEUE, may_read=False) == Findings()

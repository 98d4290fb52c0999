"""What is said of a suspended run in no queue. Kueue may hold it back, or somebody has stopped it.

The API server is a stand-in here, with the Workload that Kueue makes of each object it looks at.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from infra.kube.api_server.access import Access
from infra.kube.errors import ApiError
from infra.kube.job import Job
from infra.kube.names import SUSPENDED_BY_ANNOTATION
from infra.kube.queues.await_queue import SuspendedError, stopped_text
from infra.kube.queues.unqueued_findings import held_without_queue
from infra.names import QUEUE_LABEL
from tests.cli.records import RECORD
from tests.unit.kube.server import ApiServer, Json, api_of

GROUP = "/apis/kueue.x-k8s.io"
HELD = "it is in no queue, and Kueue, which shares this cluster out"


class Server(ApiServer):
    """A cluster with Workloads of Kueue and the record of the run.

    Args:
        workloads: the number of Workloads of the run.
        status: the status with which a look at the Workloads is answered.
        suspended_by: the stack by which the record says that the run was stopped; empty: by nobody.
    """

    def __init__(self, workloads: int, status: int = 200, suspended_by: str = "") -> None:
        self.workloads, self.status = workloads, status
        self.record = RECORD.to_object(RECORD.namespace)
        self.record["metadata"]["annotations"][SUSPENDED_BY_ANNOTATION] = suspended_by

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json:
        del method, query, body
        if path == GROUP:
            return {"versions": [{"version": "v1beta2"}]}
        if path == f"{GROUP}/v1beta2/namespaces/disttrain/workloads":
            if self.status != 200:
                raise ApiError(self.status, "no")
            return {"items": [{}] * self.workloads}
        return self.record


def workload(queue: str = "") -> dict[str, Any]:
    labels = {QUEUE_LABEL: queue} if queue else {}
    return {"metadata": {"uid": "u", "labels": labels}, "spec": {"suspend": True}}


@pytest.mark.parametrize(
    ("queue", "workloads", "status", "held"),
    [
        ("", 1, 200, True),
        ("", 0, 200, False),  # somebody has suspended it
        ("gpus", 1, 200, False),  # its queue has the reason
        ("", 1, 403, False),
    ],
)
def test_kueue_holds_what_it_looks_at_and_what_names_no_queue(
    queue: str, workloads: int, status: int, held: bool
) -> None:
    """A suspended run counts as held back by Kueue only if it names no queue and Kueue has made a
    Workload for it.
    """
    said = held_without_queue(api_of(Server(workloads, status)), "disttrain", workload(queue))
    assert said.startswith(HELD) == bool(said) == held
    assert ("kubectl get localqueues -n disttrain" in said) == held


def said_of(server: Server) -> str:
    """Return what `pulumi up` says of a suspended run."""
    job = Job(Access(kubeconfig="{}"), RECORD.namespace, RECORD.owner, RECORD.stack, {})
    try:
        return stopped_text(job, api_of(server), RECORD.workload, workload())
    except SuspendedError as reason:
        return str(reason)


def test_up_names_kueue_where_nobody_else_has_suspended_the_run() -> None:
    """`up` says that Kueue holds back a run in no queue. It does not say that `pulumi up` resumes
    the run, because Kueue would suspend it each time. A run that somebody or `./disttrain stop` has
    suspended gets other words.
    """
    said = said_of(Server(1))
    assert said.startswith(f"Job train-singlepod does not start: {HELD}")
    assert "resumes it" not in said
    assert "by somebody; `pulumi up` resumes it" in said_of(Server(0))
    assert "was stopped by ./disttrain stop" in said_of(Server(1, suspended_by=RECORD.stack))

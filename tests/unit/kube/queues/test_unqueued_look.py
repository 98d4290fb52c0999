"""A Kueue that holds back, or takes up, what names no queue. The API server is a stand-in here,
which changes a Job as Kueue's webhook does."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from infra.kube.api_server.findings import Findings
from infra.kube.api_server.rights import REVIEWS
from infra.kube.errors import ApiError
from infra.kube.queues.unqueued_look import unqueued_findings
from infra.names import QUEUE_LABEL
from tests.unit.kube.server import ApiServer, Json, api_of

KUEUE = "/apis/kueue.x-k8s.io"
JOBS = "/apis/batch/v1/namespaces/disttrain/jobs"
POD: dict[str, Any] = {"spec": {"containers": [], "restartPolicy": "Never"}}


class Server(ApiServer):
    """Answers the trial of a Job, of which nothing may stay."""

    def __init__(
        self, served: bool, suspend: bool, queue: str, status: int = 201, may: str = "*"
    ) -> None:
        self.served, self.suspend, self.queue, self.status = served, suspend, queue, status
        self.may = may  # the only verb that is allowed
        self.tried = 0

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        if path == KUEUE:
            return {"versions": []} if self.served else None
        if path == f"{REVIEWS}/selfsubjectrulesreviews":
            return {"status": {}}
        if path == f"{REVIEWS}/selfsubjectaccessreviews":
            return {"status": {"allowed": body["spec"]["resourceAttributes"]["verb"] == self.may}}
        assert (method, path, query) == ("POST", JOBS, {"dryRun": "All"})
        assert isinstance(body, dict)
        self.tried += 1
        job = json.loads(json.dumps(body))
        assert job["spec"]["suspend"] is False
        job["spec"]["suspend"] = self.suspend
        job["metadata"]["labels"] = {QUEUE_LABEL: self.queue} if self.queue else {}
        if self.status != 201:
            raise ApiError(self.status, "no")
        return job


def look(
    server: Server, queue: str = "", *, has_dataset: bool = True, can_queue: bool = True
) -> Findings:
    api = api_of(server)
    kinds = {"has_dataset": has_dataset, "can_queue": can_queue}
    return unqueued_findings(api, "disttrain", POD, queue, **kinds)


@pytest.mark.parametrize("queue", ["", "gpus"])
def test_dataset_that_would_wait_for_ever_is_refused(queue: str) -> None:
    """No setting puts its Job into a queue, so only the administrator can help."""
    (problem,) = look(Server(True, True, ""), queue, has_dataset=True).problems
    assert problem.startswith(
        f"queue: {queue!r} cannot be used here: the Job that prepares the data set is in no queue, "
        "and Kueue, which shares this cluster out, is set up to let nothing start that is in none "
        "(manageJobsWithoutQueueName: true), so it would wait for ever. "
    )
    assert ("The run itself would wait too" in problem) == (not queue)
    assert "make a LocalQueue with the name default in the namespace disttrain" in problem
    # Kueue would suspend a run with a queue there, and never look at it again.
    assert ("leave the namespace out" in problem) == (not queue)


def test_run_that_would_wait_for_ever_is_refused() -> None:
    """`up` would wait for it to its limit; the user can put it into a queue."""
    (problem,) = look(Server(True, True, ""), has_dataset=False).problems
    assert problem.startswith("queue: '' cannot be used here: the run is in no queue, and Kueue")
    assert "`kubectl get localqueues -n disttrain` lists them" in problem
    assert "`pulumi config set queue NAME` with the next `pulumi up` chooses one" in problem
    assert "administrator" not in problem


def test_nothing_is_said_of_a_kind_that_no_queue_holds_back() -> None:
    """What becomes of a Job tells nothing of a StatefulSet, and the setting queue is refused with
    it, so nobody could do what is said."""
    for given in ("", "default"):
        server = Server(True, True, given)
        assert look(server, has_dataset=False, can_queue=False) == Findings()
    (problem,) = look(Server(True, True, ""), can_queue=False).problems
    assert "the Job that prepares the data set is in no queue" in problem
    assert "The run itself" not in problem


def test_default_queue_of_a_namespace_is_named() -> None:
    found = look(Server(True, True, "default"))
    assert found.problems == []
    (note,) = found.notes
    assert note.startswith("the setting queue is empty, so this cluster's Kueue puts the run into")
    assert "pulumi config set queue default" in note
    assert look(Server(True, True, "default"), "gpus") == Findings()


def test_rights_of_a_default_queue_are_named() -> None:
    """`up` made everything, and then ended with the refusal to list Workloads."""
    (problem,) = look(Server(True, True, "default", may="get")).problems
    said, role = problem.split("\n", 1)
    assert said.startswith("kubeconfig: its user may not do all that the run needs in queue")
    (rule,) = yaml.safe_load(role)["rules"]
    assert (rule["resources"], rule["verbs"]) == (["workloads"], ["list", "patch"])
    assert rule["apiGroups"] == ["kueue.x-k8s.io"]
    # A run whose queue the settings name is asked with all other rights.
    assert look(Server(True, True, "default", may=""), "gpus") == Findings()


def test_program_in_a_queue_has_nothing_that_is_held_back() -> None:
    assert look(Server(True, True, ""), "gpus", has_dataset=False) == Findings()


@pytest.mark.parametrize(
    "server",
    [Server(True, False, ""), Server(False, True, ""), Server(True, True, "", status=404)],
    ids=["takes it", "has no Kueue", "has no such namespace yet"],
)
def test_cluster_that_holds_nothing_back_is_taken(server: Server) -> None:
    assert look(server) == Findings()
    assert server.tried == server.served

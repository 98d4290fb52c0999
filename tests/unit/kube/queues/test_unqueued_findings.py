"""What the preview says of a Kueue that holds back Jobs in no queue, or puts them into a queue.

The API server is a stand-in, which changes a Job as Kueue's webhook does.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from infra.kube.api_server.findings import Findings
from infra.kube.api_server.rights import REVIEWS
from infra.kube.errors import ApiError
from infra.kube.queues.unqueued_findings import unqueued_findings
from infra.names import QUEUE_LABEL
from tests.unit.kube.server import ApiServer, Json, api_of

KUEUE = "/apis/kueue.x-k8s.io"
JOBS = "/apis/batch/v1/namespaces/disttrain/jobs"
POD: dict[str, Any] = {"spec": {"containers": [], "restartPolicy": "Never"}}


class Server(ApiServer):
    """A stand-in for an API server that answers the trial of a Job. The trial must be a dry run, so
    that no Job stays.

    Args:
        served: whether the cluster has Kueue.
        suspend: whether Kueue suspends the Job.
        queue: the queue into which Kueue puts the Job; empty: none.
        status: the status with which the trial is answered.
        may: the only verb that the rights allow.
    """

    def __init__(
        self, served: bool, suspend: bool, queue: str, status: int = 201, may: str = "*"
    ) -> None:
        self.served, self.suspend, self.queue, self.status = served, suspend, queue, status
        self.may = may
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
    """A run is refused if Kueue would hold back the Job that prepares its data set. No setting puts
    this Job into a queue, so the message names what the administrator can do.
    """
    (problem,) = look(Server(True, True, ""), queue, has_dataset=True).problems
    assert problem.startswith(
        f"queue: {queue!r} cannot be used here: the Job that prepares the data set is in no queue, "
        "and Kueue, which shares this cluster out, is set up to let nothing start that is in none "
        "(manageJobsWithoutQueueName: true), so it would wait for ever. "
    )
    assert ("The run itself would wait too" in problem) == (not queue)
    assert "make a LocalQueue with the name default in the namespace disttrain" in problem
    # Kueue would suspend a run with a queue in a namespace that it leaves out, and never start it.
    assert ("leave the namespace out" in problem) == (not queue)


def test_run_that_would_wait_for_ever_is_refused() -> None:
    """A run in no queue is refused if Kueue would hold it back, and the message tells the user how
    to choose a queue. Otherwise `up` would wait for the run until its limit.
    """
    (problem,) = look(Server(True, True, ""), has_dataset=False).problems
    assert problem.startswith("queue: '' cannot be used here: the run is in no queue, and Kueue")
    assert "`kubectl get localqueues -n disttrain` lists them" in problem
    assert "`pulumi config set queue NAME` with the next `pulumi up` chooses one" in problem
    assert "administrator" not in problem


def test_nothing_is_said_of_a_kind_that_no_queue_holds_back() -> None:
    """Nothing is said of a run whose kind Kueue cannot queue, such as a StatefulSet. The trial of a
    Job tells nothing about it, and it could not have the setting `queue`. Its data set's Job is
    still checked.
    """
    for given in ("", "default"):
        server = Server(True, True, given)
        assert look(server, has_dataset=False, can_queue=False) == Findings()
    (problem,) = look(Server(True, True, ""), can_queue=False).problems
    assert "the Job that prepares the data set is in no queue" in problem
    assert "The run itself" not in problem


def test_default_queue_of_a_namespace_is_named() -> None:
    """A note names the queue into which Kueue puts a run that names none, and how to set it."""
    found = look(Server(True, True, "default"))
    assert found.problems == []
    (note,) = found.notes
    assert note.startswith("the setting queue is empty, so this cluster's Kueue puts the run into")
    assert "pulumi config set queue default" in note
    assert look(Server(True, True, "default"), "gpus") == Findings()


def test_rights_of_a_default_queue_are_named() -> None:
    """The rights that a run needs in a default queue are checked, and the message has a role with
    the missing ones. Otherwise `up` would make everything and then fail because it may not list
    Workloads.
    """
    (problem,) = look(Server(True, True, "default", may="get")).problems
    said, role = problem.split("\n", 1)
    assert said.startswith("kubeconfig: its user may not do all that the run needs in queue")
    (rule,) = yaml.safe_load(role)["rules"]
    assert (rule["resources"], rule["verbs"]) == (["workloads"], ["list", "patch"])
    assert rule["apiGroups"] == ["kueue.x-k8s.io"]
    # If the settings name a queue, another check looks at its rights.
    assert look(Server(True, True, "default", may=""), "gpus") == Findings()


def test_program_in_a_queue_has_nothing_that_is_held_back() -> None:
    """Nothing is refused for a run in a queue that has no Job for its data set."""
    assert look(Server(True, True, ""), "gpus", has_dataset=False) == Findings()


@pytest.mark.parametrize(
    "server",
    [Server(True, False, ""), Server(False, True, ""), Server(True, True, "", status=404)],
    ids=["takes it", "has no Kueue", "has no such namespace yet"],
)
def test_cluster_that_holds_nothing_back_is_taken(server: Server) -> None:
    assert look(server) == Findings()
    assert server.tried == server.served

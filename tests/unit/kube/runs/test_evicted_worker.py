"""An MPIJob of which a worker was evicted: the MPI Operator goes on, and the run is not over."""

from typing import Any

import pytest

from infra.kube.runs.await_ready import judge
from infra.kube.runs.controller_words import words_of_controller
from infra.kube.workload import Workload, failed_condition, is_active, true_condition
from tests.unit.kube.server import ApiServer, Json, api_of

OVER = ["Succeeded", "Failed"]
SUSPEND = {"spec": {"runPolicy": {"suspend": True}}}
LOW = "The node was low on resource: memory."


def mpi_job(*conditions: tuple[str, str, str]) -> Json:
    """Return an MPIJob with these conditions: type, status and reason of each."""
    given = [{"type": kind, "status": true, "reason": why} for kind, true, why in conditions]
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "train-mpijob", "uid": "u1"},
        "spec": {"runPolicy": {}},
        "status": {"conditions": given},
    }


EVICTED = mpi_job(("Running", "False", "MPIJobRunning"), ("Failed", "True", "MPIJobEvicted"))


def pod(name: str, owner: str, **status: Any) -> Json:
    owners = [{"kind": owner, "name": "train-mpijob"}]
    return {"metadata": {"name": name, "uid": name, "ownerReferences": owners}, "status": status}


LAUNCHER = pod("train-mpijob-launcher-x", "Job", phase="Running")
WORKER = pod("train-mpijob-worker-0", "MPIJob", phase="Failed", reason="Evicted", message=LOW)


def test_evicted_worker_does_not_end_a_run() -> None:
    """The MPI Operator calls an MPIJob failed when a worker was evicted, and never takes that back.
    But its pods stay, and it makes a new worker when the evicted pod is deleted. So the run is not
    over: it holds its GPUs, can be stopped, and `pulumi up` goes on to wait for its pods.
    """
    assert is_active(EVICTED, SUSPEND, OVER)
    assert failed_condition(EVICTED, OVER) == ""
    named = Workload("kubeflow.org/v2beta1", "MPIJob", "train-mpijob")
    verdict = judge(named, "u1", EVICTED, [LAUNCHER, WORKER], 2, ["Succeeded"], ["Failed"])
    assert verdict.failure == ""
    assert f"train-mpijob-worker-0 Failed (Evicted: {LOW})" in verdict.state


@pytest.mark.parametrize(
    ("conditions", "over"),
    [
        ([("Failed", "False", "MPIJobEvicted"), ("Succeeded", "True", "MPIJobSucceeded")], "Succ"),
        ([("Failed", "True", "BackoffLimitExceeded/")], "Failed"),
    ],
)
def test_evicted_workers_run_still_ends(conditions: list[tuple[str, str, str]], over: str) -> None:
    """Such a run is over when its launcher has finished or has failed too often."""
    assert true_condition(mpi_job(*conditions), OVER).startswith(over)
    ended = mpi_job(("Failed", "True", "MPIJobEvicted"))
    ended["status"]["completionTime"] = "2026-11-26T12:00:00Z"
    assert failed_condition(ended, OVER) == "Failed: MPIJobEvicted"


class NoEvents(ApiServer):
    """A stand-in for a cluster whose events have gone, as they do after an hour."""

    def answer(self, method: str, path: str, query: Any, body: Any) -> Json | None:
        return {"items": []}


def test_dead_worker_is_told_with_the_way_out() -> None:
    """A worker that has failed as a whole pod is not made again before it is deleted. So the text
    says which pod it is, why it has failed, and the command. The Job of the launcher replaces its
    pod itself.
    """
    api = api_of(NoEvents())
    said = words_of_controller(api, "team", EVICTED, [LAUNCHER, WORKER], 2)
    assert said.startswith(f"pod train-mpijob-worker-0 Failed (Evicted: {LOW}), and the MPI")
    assert said.endswith("kubectl -n team delete pod train-mpijob-worker-0")
    failed = pod("train-mpijob-launcher-x", "Job", phase="Failed")
    living = pod("train-mpijob-worker-0", "MPIJob", phase="Running")
    assert words_of_controller(api, "team", EVICTED, [failed, living], 2) == ""
    ending: Json = {**WORKER, "metadata": {**WORKER["metadata"], "deletionTimestamp": "now"}}
    assert words_of_controller(api, "team", EVICTED, [LAUNCHER, ending], 2) == ""

"""A run in a queue: the labels of its workload, and what the programs of `up` are told of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from infra.names import QUEUE_LABEL, QUEUE_PRIORITY_LABEL
from infra.workloads import WORKLOADS
from tests.unit.stacks import Deployment, deploy

OBJECTS = {
    "single-pod": "training-job",
    "indexed-job": "training-job",
    "jobset": "training-job-set",
    "trainjob": "training-train-job",
    "pytorchjob": "training-pytorch-job",
    "mpijob": "training-mpi-job",
}
QUEUE = {"queue": "team", "queuePriority": "urgent"}


def labels(result: Deployment, name: str) -> dict[str, Any]:
    found = result.one(name).inputs["metadata"]["labels"]
    return {key: found[key] for key in (QUEUE_LABEL, QUEUE_PRIORITY_LABEL) if key in found}


def job_of(result: Deployment, name: str) -> dict[str, Any]:
    return json.loads(result.one(name).inputs["stdin"])


def test_each_kind_that_a_queue_takes_is_asked() -> None:
    assert OBJECTS.keys() == {name for name, kind in WORKLOADS.items() if kind.queued}


@pytest.mark.parametrize(("topology", "workload"), OBJECTS.items())
def test_workload_alone_has_the_labels_of_its_queue(
    tmp_path: Path, topology: str, workload: str
) -> None:
    """The field that suspends it is Kueue's: a program that set it too would fight over it."""
    made = deploy("sandbox", tmp_path, {"topology": topology, **QUEUE})
    assert labels(made, workload) == {QUEUE_LABEL: "team", QUEUE_PRIORITY_LABEL: "urgent"}
    others = [
        resource.name
        for resource in made.resources
        if resource.name != workload and resource.inputs.get("metadata")
    ]
    assert [name for name in others if labels(made, name)] == []
    spec = made.one(workload).inputs["spec"]
    assert "suspend" not in {**spec, **spec.get("runPolicy", {})}
    without = deploy("sandbox", tmp_path, {"topology": topology})
    assert labels(without, workload) == {}


def test_another_queue_or_priority_makes_another_workload(tmp_path: Path) -> None:
    """Kueue lets nobody move a run that has its place; without a queue nothing has changed."""

    def revision(**changes: str) -> str:
        made = deploy("sandbox", tmp_path, {"topology": "indexed-job", **changes})
        return made.one("training-job").inputs["metadata"]["labels"]["disttrain.dev/revision"]

    found = [
        revision(),
        revision(queue="team"),
        revision(queue="other"),
        revision(queue="team", queuePriority="urgent"),
    ]
    assert len(set(found)) == len(found)


def test_up_looks_for_the_queue_before_it_hands_over(tmp_path: Path) -> None:
    made = deploy("sandbox", tmp_path, {"topology": "indexed-job", **QUEUE})
    asked = job_of(made, "training-queue")
    assert (asked["queue"], asked["priority"]) == ("team", "urgent")
    names = [resource.name for resource in made.resources]
    assert names.index("training-queue") < names.index("training-hand-over")
    assert job_of(made, "training-hand-over")["queue"] == "team"
    without = deploy("sandbox", tmp_path, {"topology": "indexed-job"})
    assert "training-queue" not in [resource.name for resource in without.resources]


def test_up_waits_in_the_queue_only_where_the_stack_says_so(tmp_path: Path) -> None:
    limit = {"whenBusyTimeoutSeconds": "77"}
    settings = {"topology": "indexed-job", **QUEUE, **limit}
    made = deploy("sandbox", tmp_path, settings)
    assert "queue_seconds" not in job_of(made, "training-await")
    made = deploy("sandbox", tmp_path, {**settings, "whenBusy": "wait"})
    assert job_of(made, "training-await")["queue_seconds"] == 77


PODS = {
    "single-pod": ("training-job", "spec.template"),
    "indexed-job": ("training-job", "spec.template"),
    "jobset": ("training-job-set", "spec.replicatedJobs"),
    "pytorchjob": ("training-pytorch-job", "spec.pytorchReplicaSpecs"),
}


@pytest.mark.parametrize("topology", PODS)
def test_what_kueue_has_changed_of_the_pods_stays(tmp_path: Path, topology: str) -> None:
    """Kueue gives the pods the tolerations of its flavor. A change of the workload in its place, as
    by `ttlSecondsAfterFinished`, would take them back, which the API server refuses: the list is
    Kueue's. Another revision makes another workload all the same."""
    name, pods = PODS[topology]
    stack = "sandbox" if topology == "single-pod" else "sandbox-multipod"
    request = deploy(stack, tmp_path, {"topology": topology, **QUEUE}).one(name).request
    assert list(request.ignoreChanges) == [pods]
    assert "metadata.labels" in request.replaceOnChanges
    request = deploy(stack, tmp_path, {"topology": topology}).one(name).request
    assert list(request.ignoreChanges) == []
    assert "metadata.labels" not in request.replaceOnChanges


def test_each_kind_that_changes_in_its_place_says_what_kueue_changes() -> None:
    """Only the time after which a workload goes changes without another revision."""
    kinds = [kind for kind in WORKLOADS.values() if kind.queued and not kind.no_ttl_because]
    assert {kind.name for kind in kinds} == set(PODS)
    assert all(kind.changed_by_kueue for kind in kinds)

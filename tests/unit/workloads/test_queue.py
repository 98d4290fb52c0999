"""A run in a queue: the labels of its workload, and what the tasks of `up` are told of the
queue.
"""

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
    """Return the queue's labels of a resource."""
    found = result.one(name).inputs["metadata"]["labels"]
    return {key: found[key] for key in (QUEUE_LABEL, QUEUE_PRIORITY_LABEL) if key in found}


def job_of(result: Deployment, name: str) -> dict[str, Any]:
    """Return the job of a task."""
    return json.loads(result.one(name).inputs["stdin"])


def test_each_kind_that_a_queue_takes_is_asked() -> None:
    assert OBJECTS.keys() == {name for name, kind in WORKLOADS.items() if kind.queued}


@pytest.mark.parametrize(("topology", "workload"), OBJECTS.items())
def test_workload_alone_has_the_labels_of_its_queue(
    tmp_path: Path, topology: str, workload: str
) -> None:
    """Only the workload has the labels of its queue, and its manifest does not set the field that
    suspends it. That field is Kueue's, and a program that sets it too would undo Kueue's decisions.
    """
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
    """Another queue or priority makes another workload, because Kueue allows no change of a run
    that has its place.
    """

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
    """The engine ignores what Kueue changes in the pods of a run in a queue, such as the
    tolerations of its flavor. Otherwise a change of `ttlSecondsAfterFinished` would take these
    tolerations back, which the API server refuses. Another revision still makes another workload.
    """
    name, pods = PODS[topology]
    stack = "sandbox" if topology == "single-pod" else "sandbox-multipod"
    request = deploy(stack, tmp_path, {"topology": topology, **QUEUE}).one(name).request
    assert list(request.ignoreChanges) == [pods]
    assert "metadata.labels" in request.replaceOnChanges
    request = deploy(stack, tmp_path, {"topology": topology}).one(name).request
    assert list(request.ignoreChanges) == []
    assert "metadata.labels" not in request.replaceOnChanges


def test_each_kind_that_changes_in_its_place_says_what_kueue_changes() -> None:
    """Each kind whose workload can change in place names the fields that Kueue changes. In place,
    only `ttlSecondsAfterFinished` changes, because everything else makes another revision.
    """
    kinds = [kind for kind in WORKLOADS.values() if kind.queued and not kind.no_ttl_because]
    assert {kind.name for kind in kinds} == set(PODS)
    assert all(kind.changed_by_kueue for kind in kinds)

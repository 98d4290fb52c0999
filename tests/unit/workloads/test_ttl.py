"""The setting `ttlSecondsAfterFinished`: its place in the manifest of each kind, and which kinds
refuse it.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from infra.labels import REVISION_LABEL
from infra.workloads import WORKLOADS
from tests.unit.settings.reading import refusal
from tests.unit.settings.reading import run as read_run
from tests.unit.stacks import Deployment, deploy

KEY = "ttlSecondsAfterFinished"
PLACES = {
    "single-pod": ("training-job", ("spec",)),
    "indexed-job": ("training-job", ("spec",)),
    "jobset": ("training-job-set", ("spec",)),
    "pytorchjob": ("training-pytorch-job", ("spec", "runPolicy")),
    "volcano": ("training-volcano-job", ("spec",)),
}
"""The resource that is the workload, and where its API has the field."""
STAY = {
    "multi-pod": "its object never ends: the pods stay when the run is finished",
    "lws": "its object never ends: the pods stay when the run is finished",
    "trainjob": "a TrainJob has no such field, and Trainer would make a JobSet anew",
    "mpijob": "the MPI Operator hands this time on to the Job of node 0 alone",
}


def made(topology: str, tmp_path: Path, seconds: object) -> Deployment:
    """Return a deployment with this topology and this time."""
    changes = {"topology": topology, KEY: seconds}
    stack = "sandbox" if topology == "single-pod" else "sandbox-multipod"
    return deploy(stack, tmp_path, changes)


def holder(deployment: Deployment, topology: str) -> dict[str, Any]:
    """Return the part of the workload that has the field."""
    name, path = PLACES[topology]
    found: dict[str, Any] = deployment.one(name).inputs
    for key in path:
        found = found[key]
    return found


def test_each_kind_sets_or_refuses_it() -> None:
    assert set(PLACES) | set(STAY) == set(WORKLOADS)


@pytest.mark.parametrize("topology", PLACES)
def test_field_stands_where_the_controller_reads_it(topology: str, tmp_path: Path) -> None:
    """The field is where the controller of the kind reads it. Without the setting the manifest does
    not have it, so nothing changes for users who do not set it.
    """
    assert holder(made(topology, tmp_path, 3600), topology)[KEY] == 3600
    assert KEY not in json.dumps(made(topology, tmp_path, "").one(PLACES[topology][0]).inputs)


@pytest.mark.parametrize("topology", PLACES)
def test_another_time_is_another_workload_of_volcano_alone(topology: str, tmp_path: Path) -> None:
    """Another time replaces the workload only with Volcano, which refuses the change of a Job. With
    other kinds the training goes on.
    """

    def revision(seconds: object) -> str:
        workload = made(topology, tmp_path, seconds).one(PLACES[topology][0])
        return workload.inputs["metadata"]["labels"][REVISION_LABEL]

    assert (revision(3600) != revision(7200)) == (topology == "volcano")


@pytest.mark.parametrize("topology", PLACES)
def test_record_knows_how_its_end_is_found_on_the_volume(topology: str, tmp_path: Path) -> None:
    """The hand-over is told the time and where the volume has the run, so that the end of the run
    can be found when its workload is gone.
    """
    with_time, without = made(topology, tmp_path, 3600), made(topology, tmp_path, "")
    ttl = json.loads(with_time.one("training-hand-over").inputs["stdin"])["ttl"]
    assert (ttl["seconds"], ttl["run_dir"][:11]) == (3600, "/data/runs/")
    assert ttl["claim"]
    assert ttl["image"]
    assert "ttl" not in json.loads(without.one("training-hand-over").inputs["stdin"])


def test_wait_knows_what_the_cluster_demands_of_the_pod_that_reads_the_volume(
    tmp_path: Path,
) -> None:
    """The wait for the training is told `podUser`, `podLabels` and `podAnnotations` for the pod
    that reads how the run ended, and the image and the claim. It is told nothing more of a run
    whose workload stays, since another input of the wait makes `up` wait once more.
    """
    settings: dict[str, object] = {
        "podUser": 5000,
        "podLabels": {"team": "ml"},
        "podAnnotations": {"cost-center": "7"},
    }

    def told(changes: dict[str, object]) -> object:
        made = deploy("sandbox", tmp_path, changes)
        return json.loads(made.one("training-await").inputs["stdin"]).get("own")

    made = told({**settings, KEY: 3600})
    assert isinstance(made, dict)
    assert made["placement"] == {
        "metadata": {"labels": {"team": "ml"}, "annotations": {"cost-center": "7"}},
        "securityContext": {"runAsUser": 5000, "runAsGroup": 5000},
    }
    assert made["image"].startswith("localhost/")
    assert made["claim"].startswith("disttrain-pvc")
    assert told(settings) is None


@pytest.mark.parametrize("topology", STAY)
def test_kind_whose_object_stays_refuses_it_and_says_why(topology: str) -> None:
    said = " ".join(refusal({"topology": topology, KEY: 3600}).split())
    assert f"{KEY}: '3600' cannot be used: topology is {topology}, and {STAY[topology]}" in said
    able = ", ".join(PLACES)
    assert f"Remove it (`pulumi config rm {KEY}`), or set topology to one of {able}." in said


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("0", "the workload could be gone before `pulumi up` and ./disttrain status have seen"),
        ("59", "Set at least 60, such as 86400 for a day"),
        ("-1", "it is not a whole number of seconds"),
        ("1h", "it is not a whole number of seconds"),
        ("1.5", "it is not a whole number of seconds"),
        (
            str(2**31),
            "it is not a whole number of seconds from 60 to 2147483647",
        ),
    ],
)
def test_value_that_cannot_be_used_is_refused_by_its_name(value: str, reason: str) -> None:
    said = " ".join(refusal({"topology": "indexed-job", KEY: value}).split())
    assert f"{KEY}: '{value}' cannot be used: " in said
    assert reason in said


def test_limits_of_the_time_can_be_used() -> None:
    for value in (60, 2**31 - 1):
        assert read_run({"topology": "single-pod", KEY: value}).ttl_seconds == value
    assert read_run({"topology": "single-pod"}).ttl_seconds is None

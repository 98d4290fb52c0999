"""The topology and the number of pods that a stack has by default follow from its machines."""

from typing import Any

import pulumi
import pytest

from infra.settings.auto import further_machines, with_choices_made
from tests.unit.settings.reading import SSH, read

TWO: dict[str, Any] = {
    "name": "gpu2",
    "address": "10.1.2.4",
    "host_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample",
}
LOST = {**TWO, "name": "gpu3", "address": "10.1.2.5", "gone": True}
SEVERAL = {**SSH, "gpus": 6, "storageOptions": {"shared": True}, "imageDelivery": "registry"}
SEVERAL |= {"imageRepository": "registry.example.org/team/trainer", "nodes": [TWO, LOST]}


def chosen(**changes: object) -> tuple[str, int]:
    """Return the topology and the number of pods of a stack with these settings."""
    run = read({**SEVERAL, **changes}).run
    assert run
    return run.compute.topology.name, run.compute.world.pods


def test_several_machines_train_by_an_indexed_job() -> None:
    """By default, a stack with several machines trains by an indexed Job with a pod on each machine
    that is not lost. A StatefulSet would never replace a pod on a dead machine (kubernetes#55713).
    """
    assert chosen() == ("indexed-job", 2)
    assert chosen(nodes=[]) == ("single-pod", 1)
    assert chosen(nodes=[LOST]) == ("single-pod", 1)


def test_what_a_stack_chooses_itself_is_kept() -> None:
    """A topology or a number of pods that the stack sets is kept."""
    assert chosen(topology="single-pod") == ("single-pod", 1)
    assert chosen(topology="multi-pod") == ("multi-pod", 2)
    assert chosen(topology="multi-pod", nodes=[], gpusPerPod=1) == ("multi-pod", 3)
    assert chosen(pods=3, gpus=9) == ("indexed-job", 3)


def test_single_pod_takes_pods_of_one() -> None:
    """With `topology: single-pod`, `pods` may be 1. Another number is refused, because it would be
    ignored.
    """
    assert chosen(topology="single-pod", pods=1) == ("single-pod", 1)
    with pytest.raises(pulumi.RunError) as refusal:
        chosen(topology="single-pod", pods=2)
    assert "pods: 2 cannot be used: topology: single-pod has one pod" in str(refusal.value)


def test_gpus_of_all_machines_have_to_be_counted() -> None:
    """`gpus` must be at least the GPUs that the pods on all machines need."""
    with pytest.raises(pulumi.RunError) as refusal:
        chosen(gpus=3)
    assert "pods * gpusPerPod: 6 cannot be used: the platform has 3 GPUs" in str(refusal.value)
    assert "set gpus to what the platform has" in str(refusal.value)


@pytest.mark.parametrize("nodes", ["", "not JSON", "{}", "5", "null", "[1, null]"])
def test_wrong_list_of_machines_counts_as_none(nodes: str) -> None:
    """A wrong value of `nodes` counts as no machines here; the setting itself says what is wrong
    with it.
    """
    assert further_machines(nodes) == 0
    assert with_choices_made({"topology": "auto", "nodes": nodes})["topology"] == "single-pod"


@pytest.mark.parametrize(
    ("pods", "topology"),
    [
        *((pods, "single-pod") for pods in ("", "0", "1", "01", "-3", "two")),
        *((pods, "indexed-job") for pods in ("2", "02")),
        pytest.param("9" * 5000, "indexed-job", id="thousands of digits"),
    ],
)
def test_only_a_number_of_several_pods_makes_a_job_of_several(pods: str, topology: str) -> None:
    """A wrong number of pods counts as none here; the setting itself says what is wrong with it."""
    assert with_choices_made({"topology": "auto", "pods": pods})["topology"] == topology

"""The topology and the number of pods that a stack has by default: the machines decide."""

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
    run = read({**SEVERAL, **changes}).run
    assert run
    return run.compute.topology.name, run.compute.world.pods


def test_several_machines_train_by_an_indexed_job() -> None:
    """A StatefulSet's pod on a dead machine is never replaced (kubernetes#55713)."""
    assert chosen() == ("indexed-job", 2)
    assert chosen(nodes=[]) == ("single-pod", 1)
    assert chosen(nodes=[LOST]) == ("single-pod", 1)


def test_what_a_stack_chooses_itself_is_kept() -> None:
    assert chosen(topology="single-pod") == ("single-pod", 1)
    assert chosen(topology="multi-pod") == ("multi-pod", 2)
    assert chosen(topology="multi-pod", nodes=[], gpusPerPod=1) == ("multi-pod", 3)
    assert chosen(pods=3, gpus=9) == ("indexed-job", 3)


def test_single_pod_takes_pods_of_one() -> None:
    """Another number is refused, as it would count for nothing."""
    assert chosen(topology="single-pod", pods=1) == ("single-pod", 1)
    with pytest.raises(pulumi.RunError) as refusal:
        chosen(topology="single-pod", pods=2)
    assert "pods: 2 cannot be used: topology: single-pod has one pod" in str(refusal.value)


def test_gpus_of_all_machines_have_to_be_counted() -> None:
    with pytest.raises(pulumi.RunError) as refusal:
        chosen(gpus=3)
    assert "pods * gpusPerPod: 6 cannot be used: the platform has 3 GPUs" in str(refusal.value)
    assert "set gpus to what the platform has" in str(refusal.value)


@pytest.mark.parametrize("nodes", ["", "not JSON", "{}", "5", "null", "[1, null]"])
def test_wrong_list_of_machines_counts_as_none(nodes: str) -> None:
    """What is wrong with it is said by the setting itself."""
    assert further_machines(nodes) == 0
    assert with_choices_made({"topology": "auto", "nodes": nodes})["topology"] == "single-pod"

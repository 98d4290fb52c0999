"""The names of the objects: those of the original set-up, and different ones for a second run."""

from pathlib import Path

import pytest

from tests.unit.program.parts import keys, training_template, variables
from tests.unit.program.resources import OWNERS
from tests.unit.stacks import Deployment, deploy


def test_names_of_the_original_set_up_are_kept(deployment: tuple[str, Deployment]) -> None:
    """The objects of each stack have the names of the original set-up."""
    stack, result = deployment

    def name(resource: str) -> str:
        return result.one(resource).inputs["metadata"]["name"]

    if stack in OWNERS:
        assert name("namespace-namespace") == "disttrain"
        usual = "disttrain-pvc"  # the sandbox has another folder and so another claim
        claim = name("data-claim")
        assert claim == usual if stack == "dev" else claim.startswith(f"{usual}-")
        assert name("proxy-config-map") == "proxy-config"
        assert name("dataset-job") == "download-tiny-shakespeare"
    if "multi" in stack:
        assert name("training-stateful-set") == "train-multipod"
        assert name("training-service") == "train-mp-headless"
    else:
        assert name("training-job") == "train-singlepod"


@pytest.mark.parametrize("deployment", OWNERS, indirect=True)
def test_volume_and_claim_name_each_other(deployment: tuple[str, Deployment]) -> None:
    """The volume and the claim name each other, so that no other claim gets the volume, and the
    volume is kept when the claim is deleted.
    """
    _, result = deployment
    volume, claim = result.one("data-volume").inputs, result.one("data-claim").inputs
    assert claim["spec"]["selector"]["matchLabels"].items() <= volume["metadata"]["labels"].items()
    assert "disttrain.dev/owner" in volume["metadata"]["labels"]
    reference = volume["spec"]["claimRef"]
    assert reference["name"] == claim["metadata"]["name"]
    assert reference["namespace"] == claim["metadata"]["namespace"]
    assert volume["spec"]["storageClassName"] == claim["spec"]["storageClassName"] == ""
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert volume["spec"]["hostPath"]["path"] == result.outputs["hostDataPath"]


def test_second_run_of_a_topology_has_names_of_its_own(tmp_path: Path) -> None:
    """A second run of the same topology, with the setting `instance`, has objects of other names
    and its own address at which its ranks meet. Only objects named `run-` or `dataset-` may be the
    same.
    """
    first = keys(deploy("multipod", tmp_path))
    second = deploy("multipod", tmp_path, {"instance": "b"})
    names = {name for _, name in keys(second)}
    assert {"train-multipod-b", "train-mp-headless-b"} <= names
    assert {name for _, name in first} & names <= {
        name for name in names if name.startswith(("run-", "dataset-"))
    }
    environment = variables(training_template(second))
    assert environment["PET_MASTER_ADDR"] == "train-multipod-b-0.train-mp-headless-b"

"""Which images the pods of a platform need, on whatever node they are, and how a node's command is
told to ask for them. tests/sandbox/test_image_prune.py does it with a real containerd.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from infra.image.__main__ import platform_of
from infra.image.pods_images import VARIABLE, images_of_pods, named_by
from tests.unit.platform.machines import IMPORTED, TWO, deployed
from tests.unit.stacks import without_secrets


def pod(phase: str, **images: str) -> dict[str, Any]:
    """Return a pod in this phase, with one container of each of these kinds."""
    return {
        "spec": {kind: [{"name": "one", "image": image}] for kind, image in images.items()},
        "status": {"phase": phase},
    }


def test_pods_that_have_not_ended_name_what_has_to_stay() -> None:
    """Images of the containers and init containers of pods count, also of pods that wait for a
    node. Those of ended pods do not, because nothing will start from them.
    """
    pods = [
        pod("Running", containers="r:1", initContainers="r:2"),
        pod("Pending", containers="r:3"),
        pod("Failed", containers="r:4"),
        pod("Succeeded", containers="r:5"),
    ]
    assert named_by(pods) == {"r:1", "r:2", "r:3"}


def test_cluster_that_does_not_answer_is_no_error() -> None:
    """A cluster that cannot be asked leads to no error but to a line, and to None: older images
    then stay.
    """
    said: list[str] = []
    assert images_of_pods("no kubeconfig", "disttrain", said.append) is None
    assert said[0].startswith("image: older tags stay, because the cluster did not say")


def test_command_asks_only_with_a_kubeconfig_and_hands_it_to_no_builder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command asks the cluster if it is given a kubeconfig, which it removes from its
    environment, because builders get that. Without one it does not ask.
    """
    assert platform_of("ours").images_of_pods() == ()
    monkeypatch.setenv(VARIABLE, "no kubeconfig")
    with_cluster = platform_of("ours")
    assert with_cluster.namespace == "ours"
    assert VARIABLE not in os.environ
    assert with_cluster.images_of_pods() is None


def test_every_machine_of_several_gets_the_kubeconfig(tmp_path: Path) -> None:
    """Each machine's command gets the kubeconfig, as a secret, if there are several machines. With
    one machine, its containers show what pods need.
    """
    several, one = deployed(tmp_path, TWO, **IMPORTED), deployed(tmp_path, **IMPORTED)
    for name in ("image-ensure", "image-ensure-gpu2"):
        command = several.one(name)
        assert command.inputs["environment"][VARIABLE] == several.outputs["kubeconfig"]
        assert without_secrets(command.wire)["environment"][VARIABLE] == "[secret]"
    assert VARIABLE not in one.one("image-ensure").inputs["environment"]

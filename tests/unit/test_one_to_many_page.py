"""The settings of docs/one-to-many.md, as a user would copy them into the file of a stack."""

import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml

from infra.node.k3s_observation import K3sObservation
from tests.unit.stacks import PROJECT, Deployment, deploy, files_of_this_machine

PAGE = PROJECT / "docs" / "one-to-many.md"


def blocks() -> list[dict[str, Any]]:
    """Return the page's settings for each of its three steps, without the name of the project."""
    found = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [
        {key.removeprefix("disttrain:"): value for key, value in yaml.safe_load(text).items()}
        for text in found
    ]


def deployed(scratch: Path, settings: dict[str, Any]) -> Deployment:
    """Return what the stack `dev` registers with these settings. Nobody answers at the addresses of
    the page, so a stand-in says that the further machines have no k3s yet.
    """
    with patch(
        "infra.platform.further_machines.observe_k3s",
        lambda *_, **__: K3sObservation("repair-1", ""),
    ):
        return deploy("dev", scratch, settings)


@pytest.mark.parametrize(("step", "pods"), [(1, 1), (2, 3), (3, 3)])
def test_settings_of_each_step_make_its_pods(step: int, pods: int, tmp_path: Path) -> None:
    settings = blocks()[step - 1]
    if "kubeconfig" in settings:  # the page's kubeconfig does not exist here
        settings["kubeconfig"] = files_of_this_machine("sandbox", tmp_path)["kubeconfig"]
    made = deployed(tmp_path, settings)
    job = made.one("training-job").inputs["spec"]
    assert job.get("completions", 1) == pods
    limits = job["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert int(limits["nvidia.com/gpu"]) * pods == settings["gpus"]


def test_further_machines_get_k3s_and_the_image(tmp_path: Path) -> None:
    made = deployed(tmp_path, blocks()[1])
    names = {resource.name for resource in made.resources}
    wanted = {f"{what}-gpu{number}" for what in ("node", "image-ensure") for number in (2, 3)}
    assert wanted <= names

"""The trainer's image: its name, where it is built, and when it is brought again."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.unit.program.parts import templates
from tests.unit.program.resources import OWNERS
from tests.unit.program.secret_settings import SECRET_KEYS, SECRETS
from tests.unit.stacks import PLATFORM_OF, Deployment, deploy, outputs_of


def images_of_pods(result: Deployment) -> set[str]:
    """Return the images of all containers of the data set's Job and of the training."""
    found = templates(result)
    assert len(found) == 2
    specs = [template["spec"] for template in found]
    return {
        each["image"]
        for spec in specs
        for each in (*spec["containers"], *spec.get("initContainers", []))
    }


@pytest.mark.parametrize("deployment", OWNERS, indirect=True)
def test_image_is_built_and_imported_under_the_name_that_pods_ask_for(
    deployment: tuple[str, Deployment],
) -> None:
    """The image is built, imported and removed under the name that is in the outputs, and that all
    pods ask for.
    """
    _, result = deployment
    command = result.one("image-ensure").inputs
    assert command["environment"]["TRAINER_IMAGE"] == result.outputs["image"]
    assert f"--reference {result.outputs['image']}" in command["delete"]
    assert result.outputs["imageDigest"] == "sha256:0123"
    assert images_of_pods(result) == {result.outputs["image"]}


@pytest.mark.parametrize("deployment", PLATFORM_OF, indirect=True)
def test_run_elsewhere_has_its_platforms_image(deployment: tuple[str, Deployment]) -> None:
    """A run on the platform of another stack brings no image. Its pods ask for the platform's."""
    stack, result = deployment
    assert not [each.name for each in result.resources if each.name.startswith("image")]
    image = outputs_of(PLATFORM_OF[stack])["image"]
    assert images_of_pods(result) == {result.outputs["image"]} == {image}


def test_image_is_built_where_the_settings_say(tmp_path: Path) -> None:
    """The setting `imageBuildOn` reaches the command that builds the image."""
    for place in ("here", "node"):
        result = deploy("dev", tmp_path, {**SECRETS, "imageBuildOn": place}, SECRET_KEYS)
        assert f"--build-on {place}" in result.one("image-ensure").inputs["create"]


def test_image_command_runs_again_when_the_image_was_missed(tmp_path: Path) -> None:
    """The command that imports the image runs again if the node lacks the image, which is another
    request.
    """

    def inputs(request: str) -> dict[str, Any]:
        with patch("tests.unit.stacks.IMPORT_REQUEST", request):
            return deploy("dev", tmp_path).one("image-ensure").inputs

    assert inputs("1") == inputs("1")
    assert inputs("1") != inputs("2")
    assert inputs("2")["environment"]["IMAGE_IMPORT_REQUEST"] == "2"

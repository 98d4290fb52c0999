"""How long the engine waits for the commands that build and send the image."""

from pathlib import Path

import pulumi
import pytest

from infra.deliveries import DELIVERIES
from infra.deliveries.command import LIMIT_SECONDS
from tests.unit.platform.machines import IMPORTED, TWO, deployed
from tests.unit.stacks import PROJECT

REGISTRY = {"imageDelivery": "registry", "imageRepository": "registry.example.org/team/trainer"}
MIRROR = {"imageDelivery": "mirror", "imageRepository": "images.disttrain.internal/trainer"}
COMMANDS = {
    "import": (IMPORTED, ["image-ensure", "image-ensure-gpu2"]),
    "mirror": (MIRROR, ["image-ensure", "image-ensure-gpu2"]),
    "registry": (REGISTRY, ["image-push"]),
}


def test_every_delivery_has_the_same_limit(tmp_path: Path) -> None:
    """Each command that builds or sends the image ends after the same time, which docs/image.md
    names. Otherwise a build that one delivery finishes would be ended by another one.
    """
    assert COMMANDS.keys() == {*DELIVERIES}
    for changes, names in COMMANDS.values():
        made = deployed(tmp_path, TWO, **changes)
        for name in names:
            limits = made.one(name).request.customTimeouts
            assert limits.create == limits.update == f"{LIMIT_SECONDS}s"
    assert LIMIT_SECONDS == 2 * 3600
    words = " ".join((PROJECT / "docs" / "image.md").read_text().split())
    assert "ends the command after 2 hours" in words


def test_machine_tries_no_longer_than_the_engine_waits(tmp_path: Path) -> None:
    """A `pullTimeoutSeconds` that the engine's limit would cut short is refused, as the error would
    not say what the machine lacks.
    """
    longest = LIMIT_SECONDS - 60
    options = {"imageDeliveryOptions": {"pullTimeoutSeconds": longest + 1}}
    with pytest.raises(pulumi.RunError) as refused:
        deployed(tmp_path, TWO, **MIRROR, **options)
    said = f"imageDeliveryOptions.pullTimeoutSeconds: {longest + 1} cannot be used: pulumi ends "
    assert said in str(refused.value)
    assert f"Set {longest} or less" in str(refused.value)
    options = {"imageDeliveryOptions": {"pullTimeoutSeconds": longest}}
    assert deployed(tmp_path, TWO, **MIRROR, **options).one("image-ensure-gpu2")

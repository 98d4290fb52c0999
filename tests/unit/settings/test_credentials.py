"""Addresses that hold a password: refused in plain text, and carried where nobody reads them."""

import json
from pathlib import Path
from typing import Any

import pytest

from infra.airgap.stack_file import settings_of
from infra.deliveries.import_ import ensure_command, remove_command
from infra.deliveries.kind import DeliveryRequest
from tests.unit.settings.reading import platform, read, refusal
from tests.unit.stacks import deploy, without_secrets

INDEX = "https://download.pytorch.org/whl/cu118"
LOGIN = "https://me:hunter2@download.pytorch.org/whl/cu118"
TEXT = {"datasetSha256": "0" * 64}
PROGRAM = {"program": {"command": ["python", "train.py"]}}


def test_credentials_in_plain_are_refused() -> None:
    """Fault 20 of the review: user and password in `torchIndexUrl` were accepted in plain text."""
    text = refusal({"torchIndexUrl": LOGIN})
    assert "torchIndexUrl: [secret] cannot be used: it holds a secret in plain text" in text
    assert "hunter2" not in text


def test_encrypted_index_is_on_no_command_line() -> None:
    """Fault 20 of the review: the password stood on the command line of the image's build."""
    settings = platform({"torchIndexUrl": LOGIN}, ("torchIndexUrl",))
    image = settings.image
    assert image.torch_index_login is not None
    assert image.torch_index_login.text == LOGIN
    request = DeliveryRequest(image.plan, options=settings.delivery.options)
    commands = ensure_command(request) + remove_command(request)
    assert "hunter2" not in commands + repr(settings)
    assert INDEX in commands


def test_password_of_the_index_does_not_rename_the_image() -> None:
    with_login = platform({"torchIndexUrl": LOGIN}, ("torchIndexUrl",)).image.plan
    assert with_login.deps_hash == platform({"torchIndexUrl": INDEX}).image.plan.deps_hash


def test_encrypted_index_is_a_secret_in_state(tmp_path: Path) -> None:
    """Fault 20 of the review: the password stood in plain text in Pulumi's state."""
    result = deploy("dev", tmp_path, {"torchIndexUrl": LOGIN}, ("torchIndexUrl",))
    ensure = result.one("image-ensure")
    assert ensure.inputs["environment"]["DISTTRAIN_TORCH_INDEX"] == LOGIN
    for resource in result.resources:
        assert "hunter2" not in json.dumps(without_secrets(resource.wire)), resource.name
    assert "hunter2" not in json.dumps(result.outputs)


@pytest.mark.parametrize(
    ("url", "secret_keys"),
    [
        ("https://me:hunter2@host/text", ()),
        ("https://me:hunter2@host/text", ("datasetUrl",)),
        ("https://host/text?token=abc", ("datasetUrl",)),
    ],
)
def test_secret_address_of_the_text_is_refused(url: str, secret_keys: tuple[str, ...]) -> None:
    """Fault 20 of the review: user and password in `datasetUrl` stood in a ConfigMap."""
    text = refusal({**TEXT, "datasetUrl": url}, secret_keys)
    assert "datasetUrl: " in text
    assert "would be in plain text in a ConfigMap" in text
    assert "set datasetFile" in text
    assert "hunter2" not in text


def test_addresses_without_credentials_are_taken() -> None:
    settings = read({**TEXT, "datasetUrl": "https://host/text?a=b@c", "torchIndexUrl": INDEX})
    assert settings.run
    assert settings.run.config.dataset.url == "https://host/text?a=b@c"
    assert settings.own_platform.image.torch_index_login is None


def test_bundle_of_an_encrypted_index_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.mine.yaml"
    file.write_text('config:\n  disttrain:torchIndexUrl:\n    secure: "v1:abc:def"\n')
    with pytest.raises(ValueError, match=r"torchIndexUrl: \[secret\].*PIP_EXTRA_INDEX_URL"):
        settings_of(file, {})


@pytest.mark.parametrize(
    ("changes", "read_by"),
    [
        ({"program": {"command": ["python", "--token", "hunter2"]}}, "the run's ConfigMap"),
        ({"program": {"command": "hunter2", "per": "hunter2"}, "run": {}}, "the run's ConfigMap"),
        ({"podEnvironment": {"TOKEN": "hunter2"}}, "the pods"),
        ({"run": {"mirror": {"url": "https://me:hunter2@store"}}}, "the run's ConfigMap"),
        ({"run": {"hunter2": "hunter2"}}, "the run's ConfigMap"),
        ({"run": {"train": {"max_restarts": "hunter2"}}, **PROGRAM}, "the run's ConfigMap"),
        ({"datasetOptions": {"text_field": "hunter2"}}, "the run's ConfigMap"),
    ],
    ids=["program", "wrong program", "variable", "run", "wrong run", "run of a program", "text"],
)
def test_encrypted_value_that_pods_show_is_refused(changes: dict[str, Any], read_by: str) -> None:
    """It would be in plain text in the cluster, though the user has taken care of it."""
    key = next(iter(changes))
    text = refusal(changes, secret_keys=[key])
    assert f"  - {key}: [secret] cannot be used: a value in it is encrypted" in text
    assert read_by in text
    assert ("--path podSecrets.NAME" in text) == (key != "datasetOptions")
    assert "hunter2" not in text
    assert len(text.splitlines()) == 2

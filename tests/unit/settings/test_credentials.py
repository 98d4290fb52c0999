"""Addresses that contain a password are refused in plain text, and an encrypted one goes only where
nobody can read it.
"""

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
    """An address of torch's index with user and password is refused in plain text, and not
    shown.
    """
    text = refusal({"torchIndexUrl": LOGIN})
    assert "torchIndexUrl: [secret] cannot be used: it holds a secret in plain text" in text
    assert "hunter2" not in text


def test_encrypted_index_is_on_no_command_line() -> None:
    """The password of an encrypted `torchIndexUrl` is on no command line of the image's build."""
    settings = platform({"torchIndexUrl": LOGIN}, ("torchIndexUrl",))
    image = settings.image
    assert image.torch_index_login is not None
    assert image.torch_index_login.text == LOGIN
    request = DeliveryRequest(image.plan, options=settings.delivery.options)
    commands = ensure_command(request) + remove_command(request)
    assert "hunter2" not in commands + repr(settings)
    assert INDEX in commands


def test_password_of_the_index_does_not_rename_the_image() -> None:
    """The image has the same name with and without a login in `torchIndexUrl`."""
    with_login = platform({"torchIndexUrl": LOGIN}, ("torchIndexUrl",)).image.plan
    assert with_login.deps_hash == platform({"torchIndexUrl": INDEX}).image.plan.deps_hash


def test_encrypted_index_is_a_secret_in_state(tmp_path: Path) -> None:
    """The password of an encrypted `torchIndexUrl` reaches the build by a variable, and is nowhere
    in plain text in Pulumi's state.
    """
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
    """A `datasetUrl` with a password is refused, encrypted or not, because it would be in plain
    text in a ConfigMap. The error says to use `datasetFile`.
    """
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
    """A bundle cannot be made with an encrypted `torchIndexUrl`, which cannot be read then; the
    error says how to give the index.
    """
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
    """An encrypted value in a setting that pods show is refused, although the user wants it to be
    secret: it would be in plain text in the cluster. There is one message, which does not show the
    value.
    """
    key = next(iter(changes))
    text = refusal(changes, secret_keys=[key])
    assert f"  - {key}: [secret] cannot be used: a value in it is encrypted" in text
    assert read_by in text
    assert ("--path podSecrets.NAME" in text) == (key != "datasetOptions")
    assert "hunter2" not in text
    assert len(text.splitlines()) == 2


@pytest.mark.parametrize("key", ["podAnnotations", "podLabels"])
def test_marks_of_pods_cannot_be_secret(key: str) -> None:
    """An encrypted value in annotations or labels is refused: the pods and the stack's state would
    have it in plain text.
    """
    said = refusal({key: {"team": "hunter2"}}, [key])
    assert said.count("  - ") == 1
    assert f"  - {key}: [secret] cannot be used: a value in it is encrypted, and everybody" in said
    assert f"`pulumi config rm {key}`" in said
    assert "hunter2" not in said

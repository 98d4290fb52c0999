"""`fetch` finds a run's mirror and its credentials in a stack's settings and the user's
environment.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from cli.fetch import mirror_libraries
from cli.fetch.mirror_libraries import need_libraries
from cli.fetch.mirror_settings import Mirror, mirror_of_stack

URL = "s3://bucket/runs"
SHOWN = {
    "podEnvironment": json.dumps({"AWS_ENDPOINT_URL": "https://s3", "NCCL_DEBUG": "INFO"}),
    "podSecrets": json.dumps({"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "hunter2"}),
}
SETTINGS = """
config:
  disttrain:run: {checkpoint: {mirror: s3://bucket/runs}}
  disttrain:podEnvironment: {AWS_ENDPOINT_URL: https://s3, NCCL_DEBUG: INFO}
  disttrain:podSecrets:
    AWS_ACCESS_KEY_ID: {secure: aaaa}
    AWS_SECRET_ACCESS_KEY: {secure: bbbb}
"""


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a stack whose settings name a mirror and its encrypted credentials."""
    (tmp_path / "other").write_text(SETTINGS)
    monkeypatch.setattr("cli.fetch.mirror_settings.stack_file", lambda name: tmp_path / name)
    return "other"


def refuse(stack: str) -> Mapping[str, str]:
    """Fail the test, because the stack's secrets are asked for."""
    raise AssertionError(f"secrets of {stack} were asked for")


def test_stack_has_the_address_and_the_credentials_of_its_pods(stack: str) -> None:
    """`fetch` uses the mirror, the endpoint and the credentials that the stack's pods get, and no
    other variable of theirs. The secrets are not shown when the mirror is printed.
    """
    found = mirror_of_stack(stack, {}, lambda name: SHOWN)
    assert found == Mirror(
        URL,
        "other",
        {
            "AWS_ENDPOINT_URL": "https://s3",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "hunter2",
        },
    )
    assert "hunter2" not in repr(found)


def test_credentials_of_the_user_are_not_mixed_with_those_of_the_stack(stack: str) -> None:
    """If the user's environment has credentials, those of the stack are not used, and no passphrase
    of Pulumi is needed.
    """
    found = mirror_of_stack(stack, {"AWS_PROFILE": "mine"}, refuse)
    assert found == Mirror(URL, "other", {"AWS_ENDPOINT_URL": "https://s3"})


def test_endpoint_that_is_encrypted_brings_no_credentials_along(stack: str, tmp_path: Path) -> None:
    """If the endpoint is encrypted, it is decrypted, but the stack's credentials are still not
    mixed with the user's own.
    """
    plain = "{AWS_ENDPOINT_URL: https://s3, NCCL_DEBUG: INFO}"
    hidden = SETTINGS.replace(plain, "{AWS_ENDPOINT_URL: {secure: cccc}}")
    assert hidden != SETTINGS
    (tmp_path / stack).write_text(hidden)
    found = mirror_of_stack(stack, {"AWS_ACCESS_KEY_ID": "mine"}, lambda name: SHOWN)
    assert found == Mirror(URL, "other", {"AWS_ENDPOINT_URL": "https://s3"})


def test_mirror_of_an_environment_is_found(stack: str, tmp_path: Path) -> None:
    """If the stack's file names environments of Pulumi ESC, the mirror and the credentials may be
    in them, so pulumi is asked.
    """
    (tmp_path / stack).write_text("environment: [stores]\n")
    address = {"run": json.dumps({"checkpoint": {"mirror": URL}})}
    found = mirror_of_stack(stack, {"AWS_PROFILE": "mine"}, lambda name: {**SHOWN, **address})
    assert found == Mirror(URL, "other", {"AWS_ENDPOINT_URL": "https://s3"})


def test_stack_without_a_mirror_has_none(stack: str, tmp_path: Path) -> None:
    """A stack without a mirror has none unless the user names one."""
    (tmp_path / stack).write_text("config: {}\n")
    assert mirror_of_stack(stack, {}, refuse) is None
    assert mirror_of_stack(stack, {}, refuse, "file:///mnt/m") == Mirror("file:///mnt/m", "other")


def test_libraries_that_are_missing_are_named_with_their_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing libraries are named together with the command that installs the pinned versions."""
    monkeypatch.setattr(mirror_libraries.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"no fsspec and no s3fs, .* pip install --target") as said:
        need_libraries(URL, tmp_path / "absent")
    pins = [
        line.partition(" ")[0]
        for line in mirror_libraries.REQUIREMENTS.read_text().splitlines()
        if line.startswith(("fsspec", "s3fs"))
    ]
    assert len(pins) == 2
    assert str(said.value).endswith(f"{tmp_path}/absent {' '.join(pins)}")

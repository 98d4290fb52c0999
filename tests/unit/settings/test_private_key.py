"""Private keys for SSH that no connection could use are refused before anything is registered."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.settings.reading import SSH, platform, refusal

PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDwgO0kHTRfoXSnRcFGwXuKcJYJxrYqJfVbJr0g0ZrCf me"
NODE = {"name": "gpu2", "address": "10.1.2.4", "host_key": "ssh-ed25519 AAAA"}
CLUSTER = {**SSH, "storage": "nfs-first-node", "nodeAddress": "10.1.2.3", "gpus": 8}
KINDS = (("-t", "ed25519"), ("-t", "rsa", "-m", "PEM"))
WRONG = [
    ("~/.ssh/mine", "it is the path of a file and not the text in it"),
    ("/home/me/.ssh/key", "it is the path of a file and not the text in it"),
    ("id_rsa", "it is the path of a file and not the text in it"),
    (PUBLIC, "it is a public key"),
    ("-----BEGIN PUBLIC KEY-----\nAAAA\n", "it is a public key"),
    ("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n", "it has a passphrase"),
    ("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n", "it has a passphrase"),
]


def made(folder: Path, passphrase: str, *options: str) -> str:
    """Return the text of a new private key with this passphrase."""
    command = ["ssh-keygen", "-q", "-N", passphrase, "-f", str(folder / "key"), *options]
    subprocess.run(command, check=True)
    return (folder / "key").read_text()


def refused(value: str) -> tuple[str, str]:
    """Return the messages about the first machine's key, and about that of a further one."""
    first: dict[str, Any] = {**SSH, "sshPrivateKey": value}
    further = {**CLUSTER, "nodes": [{**NODE, "private_key": value}]}
    said = refusal(first, ["sshPrivateKey"]), refusal(further, ["nodes"])
    assert not any(value.strip() in text for text in said)
    return said


@pytest.mark.parametrize(("value", "reason"), WRONG)
def test_what_is_no_private_key_is_refused(value: str, reason: str) -> None:
    """A path or a public key in `sshPrivateKey` is refused. SSH would only say, for a host that the
    key should open, that it gives no access. The value is not shown.
    """
    first, further = refused(value)
    assert f"  - sshPrivateKey: [secret] cannot be used: {reason}" in first
    assert f"  - nodes[0].private_key: [secret] cannot be used: {reason}" in further
    if "passphrase" not in reason:
        assert "`pulumi config set --secret sshPrivateKey < ~/.ssh/id_ed25519`" in first
        assert "--secret --path 'nodes[0].private_key' < ~/.ssh/id_ed25519`" in further


@pytest.mark.parametrize("options", KINDS)
def test_a_key_with_a_passphrase_is_refused(options: tuple[str, ...], tmp_path: Path) -> None:
    """Nobody is asked for the passphrase of a key, so such a key is refused."""
    first, further = refused(made(tmp_path, "open-up", *options))
    for said in (first, further):
        assert "it has a passphrase, for which nobody is asked. Leave it empty and load" in said


@pytest.mark.parametrize(
    "options", [("-t", "ed25519"), ("-t", "rsa", "-m", "PEM"), ("-t", "ecdsa")]
)
def test_keys_without_passphrase_are_taken(options: tuple[str, ...], tmp_path: Path) -> None:
    text = made(tmp_path, "", *options)
    taken = platform({**SSH, "sshPrivateKey": text}, ["sshPrivateKey"]).host.defaults.private_key
    assert taken
    assert taken.text == text
    shown = platform({**CLUSTER, "nodes": [{**NODE, "private_key": text}]}, ["nodes"]).nodes
    assert len(shown) == 1


def test_a_path_in_plain_text_gets_one_message() -> None:
    """A value that is not encrypted is refused for that alone, and is not shown."""
    said = refusal({**SSH, "sshPrivateKey": "~/.ssh/id_ed25519"})
    assert said.count("sshPrivateKey:") == 1
    assert "it holds a secret in plain text" in said

"""A host behind SSH: which commands run there, and by which key the host is known."""

import json
from pathlib import Path

from tests.unit.program.secret_settings import SECRET_KEYS, SECRETS
from tests.unit.stacks import deploy


def test_commands_over_ssh_pin_the_host_key(tmp_path: Path) -> None:
    """Each command of Pulumi's own on the host checks the host against the key of the settings."""
    result = deploy("dev", tmp_path, SECRETS, SECRET_KEYS)
    remote = result.of_type("command:remote:Command")
    assert {r.name for r in remote} == {
        "cluster-k3s",
        "cluster-kubeconfig",
        "gpu-operator-guard",
        "gpu-operator-cleanup",
        "gpu-operator-watch",
        "gpu-operator-await",
    }
    for command in remote:
        assert command.inputs["connection"]["hostKey"] == SECRETS["sshHostKey"]
        assert command.inputs["connection"]["host"] == "10.1.2.3"


def test_doctor_goes_the_same_way_to_the_host(tmp_path: Path) -> None:
    """The doctor reaches the host through the same jump host, and checks both keys."""
    jump = {"sshJumpHost": "gate", "sshJumpUser": "me", "sshJumpHostKey": "ssh-ed25519 AAAAGATE"}
    result = deploy("dev", tmp_path, {**SECRETS, **jump}, SECRET_KEYS)
    way = json.loads(result.one("doctor-host").inputs["stdin"])["ssh"]
    assert (way["host"], way["host_key"]) == ("10.1.2.3", SECRETS["sshHostKey"])
    assert (way["jump"]["host"], way["jump"]["host_key"]) == ("gate", "ssh-ed25519 AAAAGATE")

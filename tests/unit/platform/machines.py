"""Settings of a platform with further machines, and the resources that the program registers."""

import functools
import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

from infra.node.k3s_observation import K3sObservation
from tests.unit.program.parts import everything_before
from tests.unit.stacks import Deployment, deploy

SSH: dict[str, object] = {
    "host": "ssh",
    "sshHost": "10.1.2.3",
    "sshHostKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample",
}
MARK = "cluster-remote-generation"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample"
TWO = {"name": "gpu2", "address": "10.1.2.4", "host_key": KEY}
THREE = {"name": "gpu3", "address": "10.1.2.5", "host_key": KEY}
FITTING: dict[str, object] = {
    **SSH,
    "topology": "single-pod",  # another test tries the default
    "storageOptions": {"shared": True},
    "imageDelivery": "registry",
    "imageRepository": "registry.example.org/team/trainer",
}
IMPORTED: dict[str, object] = {
    "imageDelivery": "import",
    "imageRepository": "localhost/disttrain/trainer",
}
SERVERS = [
    {**TWO, "role": "server"},
    {**THREE, "role": "server"},
    {"name": "gpu4", "address": "10.1.2.6", "host_key": KEY},
    {"name": "gpu5", "address": "10.1.2.7", "host_key": KEY},
]


def deployed(_: Path, *nodes: object, **changes: object) -> Deployment:
    """Return what the program registers for these further machines.

    The same settings are deployed only once, because a deployment takes half a second. So a test
    that changes a part of the program has to call `deploy` itself.
    """
    return _deployed(json.dumps({**FITTING, "nodes": [*nodes], **changes}))


@functools.cache
def _deployed(settings: str) -> Deployment:
    with patch(
        "infra.platform.further_machines.observe_k3s",
        lambda *_, **__: K3sObservation("repair-1", ""),
    ):
        return deploy("dev", Path("none of this machine's files"), json.loads(settings))


def job(result: Deployment, name: str) -> dict[str, Any]:
    """Return the job of the command by which a machine joins."""
    return json.loads(result.one(f"node-{name}-k3s").inputs["stdin"])


def before(result: Deployment, name: str) -> set[str]:
    """Return the names of all resources that are made before the resource `name`."""
    return everything_before(result, result.one(name))


def changed(before: Deployment, after: Deployment) -> set[str]:
    """Return the names of the resources in both deployments whose inputs differ."""
    inputs = {resource.name: resource.inputs for resource in after.resources}
    return {each.name for each in before.resources if inputs[each.name] != each.inputs}

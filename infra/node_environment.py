"""How commands of this machine learn the way to the node: `infra.imaging.reach` reads it."""

import json

import pulumi

from infra.imaging.reach import VARIABLE
from infra.settings import Settings


def node_environment(settings: Settings) -> dict[str, pulumi.Output[str]]:
    """Where containerd is root's: on the host of our k3s. Holds the key and sudo's password."""
    node = node_text(settings)
    return {VARIABLE: pulumi.Output.secret(node)} if node else {}


def node_text(settings: Settings) -> str | None:
    """What stands in the variable, not yet a secret; None: containerd is reached from here."""
    host = settings.host
    if settings.cluster.kind != "k3s":
        return None
    node = {
        "ssh": host.ssh.for_ssh_files() if host.ssh else None,
        "sudo_password": host.sudo_password.text if host.sudo_password else "",
    }
    return json.dumps(node, sort_keys=True)

"""Makes the variable that tells `infra.image.reach` how commands on this machine reach the node."""

import json

import pulumi

from infra.node.node_variable import VARIABLE
from infra.settings import HostSettings, PlatformSettings


def node_environment(settings: PlatformSettings) -> dict[str, pulumi.Output[str]]:
    """The variable for the host of our k3s, where containerd belongs to root; else no variable.

    It holds the SSH key and sudo's password.
    """
    node = node_text(settings)
    return host_variable(node) if node else {}


def host_variable(text: str) -> dict[str, pulumi.Output[str]]:
    """The variable with a text that `host_text` has made; the value is a secret output."""
    return {VARIABLE: pulumi.Output.secret(text)}


def node_text(settings: PlatformSettings) -> str | None:
    """The value of the variable, as plain text; None: this machine reaches containerd directly."""
    return host_text(settings.host) if settings.cluster.kind == "k3s" else None


def host_text(host: HostSettings) -> str:
    """How a host is reached, and sudo's password there, as JSON."""
    return json.dumps(host.access_fields(), sort_keys=True)
